"""Streams of events end when their application stops."""

import asyncio
from typing import Any

import httpx2
import pytest

from anabranch.chat import make_chat_app
from tests.agents.memory import MemoryTrees
from tests.chat.web import model


async def test_streams_end_with_their_applications_life(caplog: pytest.LogCaptureFixture) -> None:
    app = make_chat_app(MemoryTrees(), model())
    transport = httpx2.ASGITransport(app=app)
    sent = asyncio.Queue[Any]()
    never = asyncio.Event()

    async def receive() -> Any:
        await never.wait()

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/threads/t1/events",
        "query_string": b"",
        "headers": [(b"host", b"localhost")],
    }
    async with (
        httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client,
        app.router.lifespan_context(app),
    ):
        await client.post("/threads", json={"id": "t1"})
        streams = asyncio.create_task(app(scope, receive, sent.put))
        assert (await sent.get())["status"] == 200
    await streams
    assert await sent.get() == {"type": "http.response.body", "body": b""}
    assert caplog.messages == []

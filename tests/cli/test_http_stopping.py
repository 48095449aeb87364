"""A server that stops ends the streams of its pages, and reports the requests that continue."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import ASGIApp

from anabranch.chat import make_chat_app
from anabranch.cli._endpoint import CONCURRENCY, listen
from anabranch.cli._http_server import Bounds, Lifetime, configure
from tests.agents.memory import MemoryTrees
from tests.chat.web import model
from tests.patience import PATIENCE


@asynccontextmanager
async def stoppable(app: ASGIApp) -> AsyncGenerator[tuple[str, Callable[[], None]]]:
    """Yield the address of a server of ``app``, and a function that stops the server."""
    lifetime = Lifetime(app, cut_off=lambda _: None)
    server = uvicorn.Server(configure(lifetime, Bounds(CONCURRENCY)))

    def stop() -> None:
        lifetime.stop()
        server.should_exit = True

    with listen("127.0.0.1", 0) as listener:
        serves = asyncio.create_task(server.serve([listener]))
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", stop
        await serves


@pytest.mark.parametrize("is_mounted", [False, True])
async def test_a_server_that_stops_ends_the_streams_of_its_pages(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str], *, is_mounted: bool
) -> None:
    chat = make_chat_app(MemoryTrees(), model())
    context = chat.router.lifespan_context
    app = Starlette(routes=[Mount("/chat", chat)], lifespan=context) if is_mounted else chat
    async with stoppable(app) as (address, stop), httpx2.AsyncClient(timeout=PATIENCE) as client:
        url = address + "/chat" * is_mounted
        await client.post(f"{url}/threads", json={"id": "t1"})
        async with client.stream("GET", f"{url}/threads/t1/events") as response:
            stop()
            assert (
                await response.aread() == b""
            )  # the last chunk arrived: the client raises no error
    assert caplog.messages == []
    assert "Stopping" not in capsys.readouterr().err


async def test_requests_that_continue_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    is_asked, may_end = asyncio.Event(), asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        del receive
        if scope["type"] == "http":
            is_asked.set()
            await may_end.wait()
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body", "body": b""})

    async with stoppable(app) as (url, stop), httpx2.AsyncClient(timeout=PATIENCE) as client:
        asking = asyncio.create_task(client.get(url))
        await is_asked.wait()
        stop()
        shown = ""
        while "Stopping" not in shown:
            await asyncio.sleep(0)
            shown += capsys.readouterr().err
        may_end.set()
        assert (await asking).status_code == 204
    assert shown.startswith("Stopping: 1 request in progress. After 2 s, the server ends")

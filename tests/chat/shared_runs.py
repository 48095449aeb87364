"""Runs that one web process accepts and any process over the same store works on."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx2

from anabranch._durable import RunEvents
from anabranch.messages import SampleReply
from anabranch.stores import open_tree_store
from anabranch.testing import MockModel, calls
from tests.chat.web import browsing, events_in


@asynccontextmanager
async def process(url: str, **options: Any) -> AsyncGenerator[httpx2.AsyncClient]:
    """Return a web application with a separate connection to the store, like another process."""
    store = open_tree_store(url)
    async with browsing(store=store, closes_store=True, **options) as client:
        yield client


async def die(events: RunEvents, run_id: str, attempt: int = 0) -> None:
    """Let a worker take the run of a thread, and die."""
    turn = await events.turn("t1")
    assert turn is not None
    assert turn.id == run_id
    dead = replace(turn.taken("dead", "", 1.0), attempt=attempt)
    assert await events.move("t1", turn, dead)


async def accepted(client: httpx2.AsyncClient, body: dict[str, Any]) -> None:
    """Send a run to a process that does not work on the run."""
    response = await client.post("/agui", json=body, headers={"Accept": "application/json"})
    assert response.status_code == 202, response.text


async def events_until(
    client: httpx2.AsyncClient, *types: str, thread: str = "t1"
) -> list[dict[str, Any]]:
    """Return the events of a thread, up to the first event of one of the types."""
    text = ""
    async with client.stream("GET", f"/threads/{thread}/events?after=0") as response:
        async for piece in response.aiter_text():
            text += piece
            events = events_in(text[: text.rfind("\n\n") + 1])
            for number, event in enumerate(events, 1):
                if event["type"] in types:
                    return events[:number]
    raise AssertionError(text)


async def ended(client: httpx2.AsyncClient, thread: str = "t1") -> list[dict[str, Any]]:
    """Return the events of a thread, up to the first end of a run."""
    return await events_until(client, "RUN_FINISHED", "RUN_ERROR", thread=thread)


class Held:
    """A model that writes one word, and then waits until the test releases it."""

    def __init__(self) -> None:
        self.resume = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def _reply(self) -> AsyncIterator[str | SampleReply]:
        yield "Well, "
        try:
            await self.resume.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        yield calls(text="Well, yes.")

    def model(self) -> MockModel:
        return MockModel(lambda _: self._reply())


async def until_said(client: httpx2.AsyncClient) -> None:
    """Wait until the model has written its first word."""
    await events_until(client, "TEXT_MESSAGE_CONTENT")

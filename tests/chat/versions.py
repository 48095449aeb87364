"""A tool in two versions, and processes of a chat that run one version each."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeAlias

import httpx2

from anabranch import BranchContext, tool
from anabranch.chat._web.open_work import OpenWork, open_work
from anabranch.engines import Engine
from anabranch.stores import open_run_events, open_stores
from anabranch.tool import Tool
from tests.agents.asking import Number
from tests.chat.shared_runs import accepted
from tests.chat.web import browsing, events_in, message, resume, run
from tests.diary import forget, note
from tests.patience import PATIENCE

Process: TypeAlias = Callable[[Tool[Any], str], AbstractAsyncContextManager[httpx2.AsyncClient]]
"""Begins a process of the chat with a tool, as this version of its code."""


@tool(name="book")
async def book_1(ctx: BranchContext) -> str:
    await ctx.step(note, "reserved", undo=forget)
    await ctx.elicit(Number, "How many?")
    await ctx.step(note, "charged")
    return "booked"


@tool(name="book")
async def book_2(ctx: BranchContext) -> str:
    """Run another step, and ask the same question."""
    await ctx.step(note, "held", undo=forget)
    await ctx.elicit(Number, "How many?")
    return "booked otherwise"


@tool(name="book")
async def book_3(ctx: BranchContext) -> str:
    """Run the same step, and ask in other words."""
    await ctx.step(note, "reserved", undo=forget)
    await ctx.elicit(Number, "How many seats?")
    await ctx.step(note, "charged")
    return "booked"


@asynccontextmanager
async def at_version(
    url: str, engine: Engine, tool: Tool[Any], version: str, **options: Any
) -> AsyncGenerator[httpx2.AsyncClient]:
    """Return a process with this code, which shares store and engine with others."""
    calls, trees = open_stores(url)
    async with browsing(
        store=trees,
        tools=[tool],
        calls=calls,
        engine=engine,
        code_version=version,
        closes_store=True,
        **options,
    ) as client:
        yield client


async def answer(
    client: httpx2.AsyncClient, asked: list[dict[str, Any]], run_id: str = "r2"
) -> None:
    """Send the answer to a run's question, and do not wait for the new run."""
    [interrupt] = asked[-1]["outcome"]["interrupts"]
    entry = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"n": 3}}
    await accepted(client, resume(entry, run=run_id))


async def open_runs(url: str) -> Sequence[OpenWork]:
    events = open_run_events(url)
    try:
        return await open_work(events, 0.0, 2)
    finally:
        await events.close()


@asynccontextmanager
async def waiting_for_version_1(url: str, process: Process) -> AsyncGenerator[httpx2.AsyncClient]:
    """Return a process of version 2, and the waiting run ``r2``, whose call version 1 has started."""
    async with process(book_1, "1") as old:
        asked = await run(old, message("/book"))
    async with process(book_2, "2") as new:
        await answer(new, asked)
        async with asyncio.timeout(PATIENCE):
            while not any(each.version for each in await open_runs(url)):
                pass
        yield new


async def end_of(client: httpx2.AsyncClient, run_id: str) -> list[dict[str, Any]]:
    """Return the events of the thread up to the end of a run."""
    text = ""
    async with client.stream("GET", "/threads/t1/events?after=0") as response:
        async for piece in response.aiter_text():
            text += piece
            events = events_in(text[: text.rfind("\n\n") + 1])
            if any(e["type"] == "RUN_FINISHED" and e["runId"] == run_id for e in events):
                return events
    raise AssertionError(text)

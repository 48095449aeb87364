"""Abandoned calls expire, however the host starts and whichever tools it serves."""

import logging
import re
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from fastmcp import FastMCP

from anabranch import BranchContext, tool
from anabranch._durable import CallEvent
from anabranch.mcp import install_fastmcp
from anabranch.stores import open_store
from anabranch.testing import ManualClock
from anabranch.tool import Tool
from tests.mcp.asking import Ok
from tests.mcp.harness import ERAS, HANDSHAKE, MODERN, Answers, call_once, connected
from tests.mcp.hosts import created, installed, single_on_fastmcp
from tests.patience import PATIENCE
from tests.sagas.harness import accepted, call_saga, resume_saga, text_in

RETURNED: list[str] = []


@tool
async def lend(ctx: BranchContext) -> str:
    """Lend something that must be returned, and ask."""
    taken = await ctx.step(lambda: "a book", name="take", undo=give_back)
    await ctx.elicit(Ok, "Keep it?")
    return taken


def give_back(what: str) -> None:
    RETURNED.append(what)


def mounted(made: Tool[Any], **options: Any) -> Any:
    inner: FastMCP[Any] = FastMCP("inner")
    install_fastmcp(inner, made, **options)
    outer: FastMCP[Any] = FastMCP("outer")
    outer.mount(inner)
    return outer._mcp_server


@pytest.mark.parametrize("make", [mounted, single_on_fastmcp, installed])
async def test_expiry_starts_with_the_first_call_without_a_lifespan(make: Any) -> None:
    store = open_store("memory:")
    RETURNED.clear()
    async with connected(make(lend, store=store), MODERN, Answers(elicit=print)) as client:
        await call_once(client, "lend")
    (record,) = await store.expired(float("inf"), 10)
    assert await store.hasten(record.call_id, 0.0, record.state)
    async with connected(make(lend, store=store), MODERN, Answers(elicit=print)) as client:
        await call_once(client, "lend")
        with anyio.fail_after(PATIENCE):
            while not RETURNED:
                await anyio.lowlevel.checkpoint()
    assert RETURNED == ["a book"]
    await store.close()


async def expired(store: Any) -> None:
    (record,) = await store.expired(float("inf"), 10)
    until = record.deadline + 15
    assert await store.take_to_undo(record.call_id, "reaper", record.deadline, until)
    assert await store.move(record.call_id, CallEvent.EXPIRE, owner="reaper")


@pytest.mark.parametrize("make", [mounted, single_on_fastmcp, installed, created])
async def test_a_client_that_returns_to_an_expired_call_learns_that_it_expired(make: Any) -> None:
    store = open_store("memory:")
    async with connected(make(lend, store=store), MODERN, Answers(elicit=print)) as client:
        asked = await call_once(client, "lend")
        await expired(store)
        said = {"lend/elicit.1": {"action": "accept", "content": {"ok": True}}}
        reply = await call_once(client, "lend", state=asked["requestState"], responses=said)
    assert reply["isError"]
    assert "has expired: it was not continued in time" in reply["content"][0]["text"]
    await store.close()


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_whose_token_and_call_have_expired_gets_the_reason(
    era: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The store decides how long a call accepts an answer, and not the token's expiry."""
    store, clock = open_store("memory:"), ManualClock()
    server = created(lend, store=store, ttl=0.001, clock=clock)
    async with connected(server, era, Answers(elicit=print)) as client:
        asked = await call_saga(client, "lend", {})
        clock.advance(10)
        await expired(store)
        said = accepted("lend/elicit.1", ok=True)
        with caplog.at_level(logging.WARNING):
            failed = await resume_saga(client, asked["sagaToken"], said)
    assert failed["isError"]
    assert "has expired: it was not continued in time" in text_in(failed)
    assert "was refused: it has expired" in caplog.text
    await store.close()


async def test_a_handle_of_a_call_that_has_expired_says_so() -> None:
    store = open_store("memory:")
    server = created(lend, store=store, ask="fallback")
    async with connected(server, HANDSHAKE, Answers()) as client:
        reply = await call_once(client, "lend")
        (call,) = re.findall(
            r"call the tool answer_questions with call='([^']+)'", reply["content"][0]["text"]
        )
        await expired(store)
        late = await call_once(client, "answer_questions", {"call": call})
    assert "has expired: it was not continued in time" in late["content"][0]["text"]
    await store.close()


async def test_expiry_starts_with_a_server_that_has_a_lifespan() -> None:
    """Expiry starts in a mounted FastMCP server as well, without sagas and before the first call."""
    store = open_store("memory:")
    RETURNED.clear()
    async with connected(mounted(lend, store=store), MODERN, Answers(elicit=print)) as client:
        await call_once(client, "lend")
    (record,) = await store.expired(float("inf"), 10)
    assert await store.hasten(record.call_id, 0.0, record.state)
    async with connected(mounted(lend, store=store, sagas=False), MODERN):
        with anyio.fail_after(PATIENCE):
            while not RETURNED:
                await anyio.lowlevel.checkpoint()
    assert RETURNED == ["a book"]
    await store.close()


async def test_an_installation_without_a_store_starts_and_stops_with_its_server() -> None:
    """The lifespan ends the installation's background work when the server stops."""
    inner: FastMCP[Any] = FastMCP("inner")
    installation = install_fastmcp(inner, lend)
    outer: FastMCP[Any] = FastMCP("outer")
    outer.mount(inner)
    running: list[int] = []
    for _ in range(2):
        async with connected(outer._mcp_server, MODERN):
            running.append(installation._running)
        running.append(installation._running)
    assert running == [1, 0, 1, 0]

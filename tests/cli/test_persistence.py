"""``anabranch serve --store`` stores the calls of every kind of target, and lets them expire."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from anyio import to_thread
from mcp import Client, MCPError
from mcp.server.mcpserver import MCPServer

from anabranch import BranchContext, tool
from anabranch.cli._combined_server import assemble, server_options, tool_names
from anabranch.cli._option_groups import Asking, Persistence
from anabranch.cli._targets import Found
from anabranch.mcp import install
from anabranch.stores import open_store
from tests.cli.served import Confirm
from tests.mcp.harness import KEY, MODERN, Answers, call_once, connected
from tests.patience import PATIENCE
from tests.sagas.harness import call_saga

RETURNED: list[str] = []


def take(what: str) -> str:
    return what


def give_back(what: str) -> None:
    RETURNED.append(what)


@tool
async def lend(ctx: BranchContext) -> str:
    """Lend something that must be returned, and ask."""
    taken = await ctx.step(take, "a book", undo=give_back)
    await ctx.elicit(Confirm, "Keep it?")
    return taken


@tool
async def loose(ctx: BranchContext) -> str:
    return "loose"


def alone() -> Found:
    return Found([lend, loose])


def beside() -> Found:
    existing: MCPServer[Any] = MCPServer("theirs", lifespan=_theirs)
    install(existing, loose)
    return Found([lend, loose], [existing])


@asynccontextmanager
async def _theirs(_: MCPServer[Any]) -> AsyncGenerator[dict[str, str]]:
    STARTED.set()
    yield {}


STARTED = anyio.Event()


@pytest.mark.parametrize("found", [alone, beside])
async def test_calls_are_stored_and_those_that_expire_are_undone(
    found: Callable[[], Found], tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/calls.db"
    persistence = Persistence(url)

    def server() -> MCPServer[Any]:  # in a thread: a command has no loop yet
        return assemble(found(), server_options([KEY], persistence=persistence))

    first, second = await to_thread.run_sync(server), await to_thread.run_sync(server)
    async with connected(first, MODERN, Answers(elicit=print)) as client:
        reply = await call_once(client, "lend")
        assert reply["resultType"] == "input_required"
    store = open_store(url)
    (record,) = await store.expired(float("inf"), 10)
    assert record.tool == "lend"
    assert await store.hasten(record.call_id, 0.0, record.state)
    RETURNED.clear()
    async with Client(second, mode=MODERN):
        with anyio.fail_after(PATIENCE):
            while await store.expired(float("inf"), 10):
                await anyio.lowlevel.checkpoint()
    assert RETURNED == ["a book"]
    await store.close()


def test_without_a_store_nothing_is_to_be_continued() -> None:
    assert tool_names(assemble(alone(), server_options([KEY]))) == ["lend", "loose"]


@pytest.mark.parametrize("found", [alone, beside])
@pytest.mark.parametrize("wanted", [True, False])
def test_with_a_store_calls_can_be_continued_unless_that_is_not_wanted(
    found: Callable[[], Found], wanted: bool
) -> None:
    persistence = Persistence("memory:", continue_calls=wanted)
    server = assemble(found(), server_options([KEY], persistence=persistence))
    assert ("continue_call" in tool_names(server)) is wanted


def test_a_server_with_its_own_continue_call_keeps_it() -> None:
    existing: MCPServer[Any] = MCPServer("theirs")
    install(existing, loose, store="memory:")
    options = server_options([KEY], persistence=Persistence("memory:"))
    server = assemble(Found([lend], [existing]), options)
    assert sorted(tool_names(server)) == ["continue_call", "lend", "loose"]


@pytest.mark.parametrize("wanted", [True, False])
async def test_sagas_are_offered_unless_that_is_not_wanted(wanted: bool) -> None:
    make = partial(assemble, alone(), server_options([KEY], asking=Asking(sagas=wanted)))
    async with Client(await to_thread.run_sync(make), mode=MODERN) as client:
        if wanted:
            assert (await call_saga(client, "loose", {}))["content"]
        else:
            with pytest.raises(MCPError, match="Method not found"):
                await call_saga(client, "loose", {})


async def test_the_lifespan_of_a_server_that_was_found_still_runs() -> None:
    persistence = Persistence("memory:")
    make = partial(assemble, beside(), server_options([KEY], persistence=persistence))
    async with Client(await to_thread.run_sync(make), mode=MODERN):
        assert STARTED.is_set()

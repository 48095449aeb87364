"""A sweep ends what it can, whatever else does not: one call never keeps another from its end."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import BaseModel

from anabranch import BranchContext, tool
from anabranch._durable import expiry
from anabranch._durable.expiry import Sweeper
from anabranch._durable.replies import Durability
from anabranch._durable.store import CallStore
from anabranch.errors import StoreError
from anabranch.mcp._installation import Installation
from anabranch.testing import ManualClock
from anabranch.testing.suites._call_suite import a_call
from anabranch.tool import Tool
from tests.durable.harness import Desk, OneCall, always
from tests.durable.stores import Heard, Modelled, Watched


class Number(BaseModel):
    n: int


undone: list[str] = []
hanging = asyncio.Event()


@pytest.fixture(autouse=True)
def nothing_undone() -> None:
    global hanging  # noqa: PLW0603 - an event belongs to one test's loop
    undone.clear()
    hanging = asyncio.Event()


def do() -> str:
    return "done"


def undo(what: str) -> None:
    undone.append(what)


async def hang(_: str) -> None:
    await hanging.wait()
    undone.append("late")


@tool
async def ready(ctx: BranchContext) -> None:
    """Do something, and ask."""
    await ctx.step(do, undo=undo)
    await ctx.elicit(Number, "go on?")


@tool
async def slow(ctx: BranchContext) -> None:
    """Do something that takes long to undo, and ask."""
    await ctx.step(do, undo=hang)
    await ctx.elicit(Number, "go on?")


TOOLS: Mapping[str, Tool[Any]] = {"ready": ready, "slow": slow}


async def abandoned(store: CallStore, *names: str) -> Desk:
    """Leave a call of each tool alone for too long; return where the last was made."""
    clock = ManualClock()
    desks = [
        Desk(TOOLS[name], always(n=1), clock=clock, ids=OneCall(f"call_{number}"))
        for number, name in enumerate(names)
    ]
    for desk in desks:
        await desk.request(desk.service(store))
    clock.advance(1_000)
    return desks[-1]


async def test_an_undo_that_hangs_keeps_no_other_call_from_being_undone() -> None:
    store = Heard(Modelled())
    desk = await abandoned(store, "slow", "ready")
    sweeper = Sweeper(desk.service(store), TOOLS, patience=0.01)
    assert await sweeper.sweep() == 1
    assert undone == ["done"]
    assert await sweeper.sweep() == 0  # the other is being undone still, and not a second time
    hanging.set()
    for _ in ("call_1", "call_0"):
        await store.until("finish")
    assert undone == ["done", "late"]


class Broken(Watched):
    """A store that fails for one call, in a way of its own."""

    error: Exception = StoreError("no")

    async def lease(self, call_id: str, owner: str, now: float, until: float) -> bool:
        if call_id == "call_0":
            raise self.error
        return await super().lease(call_id, owner, now, until)


@pytest.mark.parametrize("error", [StoreError("no"), KeyError("no")])
async def test_what_goes_wrong_with_one_call_is_logged_and_the_others_are_ended(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    store = Modelled()
    desk = await abandoned(store, "ready", "ready")
    broken = Broken(store)
    broken.error = error
    with caplog.at_level(logging.WARNING):
        assert await Sweeper(desk.service(broken), TOOLS).sweep() == 1
    assert undone == ["done"]
    assert "call 'call_0' was not undone this time" in caplog.text


async def test_all_that_is_due_is_pruned_in_one_pass(store: CallStore) -> None:
    for number in range(2 * expiry.AT_ONCE + 1):
        await store.begin(a_call(f"call_{number}", status="done", deadline=1.0))
    desk = Desk(ready, always(n=1))
    await Sweeper(desk.service(store), TOOLS).sweep()
    assert await store.prune(1e12, 1) == 0


class Failing(Heard):
    """A store whose every look for abandoned calls fails."""

    async def abandoned(self, now: float, limit: int) -> Any:
        self.done.put_nowait("looked")
        raise KeyError("no")


async def test_sweeping_goes_on_after_whatever_went_wrong(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Failing(Modelled())
    desk = Desk(ready, always(n=1))
    running = asyncio.ensure_future(Sweeper(desk.service(store), TOOLS).run())
    for _ in range(3):
        await store.until("looked")
        desk.clock.advance(expiry.EVERY)
    assert not running.done()
    assert caplog.messages == ["a sweep broke off"] * 3
    running.cancel()
    await asyncio.wait({running})
    assert running.cancelled()


async def test_the_last_connection_that_leaves_ends_the_sweep() -> None:
    store, clock = Heard(Modelled()), ManualClock()
    installation = Installation(
        "s",
        keys=None,
        ttl=600,
        store=Durability(store),
        sampler=None,
        limits=None,
        clock=clock,
        continue_calls=False,
    )
    first, second = installation.running(), installation.running()
    await first.__aenter__()
    await second.__aenter__()
    await store.until("prune")
    await first.__aexit__(None, None, None)
    clock.advance(expiry.EVERY)
    await store.until("prune")
    before = len(asyncio.all_tasks())
    await second.__aexit__(None, None, None)
    assert len(asyncio.all_tasks()) == before - 1

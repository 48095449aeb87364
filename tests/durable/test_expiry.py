"""The reaper ends every expired call; a call that fails or hangs delays no other call."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import pytest

from anabranch import BranchContext, tool
from anabranch._durable import CallRecord, CallState, CallStore, Durability, Reaper, expiry
from anabranch.errors import StoreError
from anabranch.mcp import Installation, ServerOptions
from anabranch.testing import ManualClock
from anabranch.tool import Tool
from tests.durable.harness import Desk, Live, Number, OneCall, always, live
from tests.durable.stores import Modelled, Observed, Watched
from tests.suites.call_samples import a_call

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
    await ctx.step(do, undo=undo)
    await ctx.elicit(Number, "go on?")


@tool
async def slow(ctx: BranchContext) -> None:
    await ctx.step(do, undo=hang)
    await ctx.elicit(Number, "go on?")


TOOLS: Mapping[str, Tool[Any]] = {"ready": ready, "slow": slow}


async def expired(store: CallStore, *names: str) -> Desk:
    """Start a call of each tool and let it expire; return the desk of the last one."""
    clock = ManualClock()
    desks = [
        Desk(TOOLS[name], always(n=1), clock=clock, ids=OneCall(f"call_{number}"))
        for number, name in enumerate(names)
    ]
    for desk in desks:
        await desk.send(store)
    clock.advance(1_000)
    return desks[-1]


async def test_a_compensation_that_hangs_delays_no_other_call() -> None:
    store = Observed(Modelled())
    desk = await expired(store, "slow", "ready")
    reaper = Reaper(desk.service(store), TOOLS, patience=5)
    first_pass = asyncio.ensure_future(reaper.expire())
    await store.until("move")
    for _ in range(9):  # let the ready call finish first
        await asyncio.sleep(0)
    assert not first_pass.done()
    desk.clock.advance(5)
    assert await first_pass == 1
    assert undone == ["done"]
    # The other call is still being undone, and its undo does not start again.
    assert await reaper.expire() == 0
    hanging.set()
    await store.until("move")
    assert undone == ["done", "late"]


class Broken(Watched):
    """A store that fails for one call."""

    error: Exception = StoreError("no")

    async def take_to_undo(
        self, call_id: str, owner: str, now: float, until: float, *, is_due: bool = True
    ) -> CallRecord | None:
        if call_id == "call_0":
            raise self.error
        taken: CallRecord | None = await self.good(
            "take_to_undo", call_id, owner, now, until, is_due=is_due
        )
        return taken


@pytest.mark.parametrize("error", [StoreError("no"), KeyError("no")])
async def test_a_failure_with_one_call_is_logged_and_the_others_are_ended(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    store = Modelled()
    desk = await expired(store, "ready", "ready")
    broken = Broken(store)
    broken.error = error
    with caplog.at_level(logging.WARNING):
        assert await Reaper(desk.service(broken), TOOLS).expire() == 1
    assert undone == ["done"]
    assert "call 'call_0' was not ended this time" in caplog.text


async def test_one_pass_prunes_all_due_calls(store: CallStore) -> None:
    for number in range(2 * expiry.BATCH + 1):
        await store.begin(a_call(f"call_{number}", state=CallState.DONE, deadline=1.0))
    desk = Desk(ready, always(n=1))
    await Reaper(desk.service(store), TOOLS).expire()
    assert await store.prune(1e12, 1) == 0


async def test_a_live_call_does_not_expire_while_its_user_thinks() -> None:
    """The lease is held until the call ends, so an answer is never late."""
    store, user = Modelled(), Live("go on?")
    desk = Desk(ready, always(n=1), policy=lambda given: Durability(given, lease=1e9))
    running = live(desk, store, user)
    await user.asked.wait()
    desk.clock.advance(1_000_000)
    assert await Reaper(desk.service(store), TOOLS).expire() == 0
    user.may.set()
    await running
    assert [each.state for each in await store.calls(9)] == ["done"]


class Failing(Observed):
    """A store that fails to list expired calls."""

    async def expired(self, now: float, limit: int) -> Any:
        self.done.put_nowait("failed")
        raise KeyError("no")


async def test_the_reaper_continues_after_any_failure(caplog: pytest.LogCaptureFixture) -> None:
    store = Failing(Modelled())
    desk = Desk(ready, always(n=1))
    running = asyncio.ensure_future(Reaper(desk.service(store), TOOLS).run())
    for _ in range(3):
        await store.until("failed")
        desk.clock.advance(expiry.INTERVAL)
    assert not running.done()
    assert caplog.messages == ["job 'expire calls' failed, and will run again"]
    running.cancel()
    await asyncio.wait({running})
    assert running.cancelled()


async def test_the_reaper_stops_with_the_last_connection() -> None:
    store, clock = Observed(Modelled()), ManualClock()
    installation = Installation([], ServerOptions(store=Durability(store), clock=clock), "test")
    first, second = installation.running(), installation.running()
    await first.__aenter__()
    await second.__aenter__()
    await store.until("prune")
    await first.__aexit__(None, None, None)
    clock.advance(expiry.INTERVAL)
    await store.until("prune")
    before = len(asyncio.all_tasks())
    await second.__aexit__(None, None, None)
    assert len(asyncio.all_tasks()) == before - 1

"""A suspended worker whose call another worker has taken over ends nothing and changes nothing.

The worker or its machine was suspended for longer than its lease lasts. The worker may have passed
every check before. Its effects are recorded all the same: see ``test_undoing.py``.
"""

import asyncio
from typing import Any

import pytest
from mcp.types import InputRequiredResult

from anabranch import BranchContext, CallExpiredError, ToolError, tool
from anabranch._durable import CallRecord, CallStore
from anabranch._engine import Finished
from tests.diary import DONE, forget, note
from tests.durable.harness import (
    UNAVAILABLE,
    Desk,
    Live,
    Number,
    always,
    asking,
    cancelled,
    live,
    reaper,
)
from tests.durable.stores import Gate, Modelled, Observed, Suspended

pytestmark = pytest.mark.usefixtures("nothing_done")


@tool
async def asks_first(ctx: BranchContext) -> str:
    await ctx.elicit(Number, "which?")
    await ctx.step(note, "booked", undo=forget)
    await ctx.elicit(Number, "sure?")
    return "booked"


@tool
async def does_first(ctx: BranchContext) -> str:
    await ctx.step(note, "looked", undo=forget)
    await ctx.elicit(Number, "which?")
    await ctx.step(note, "booked", undo=forget)
    await ctx.elicit(Number, "sure?")
    return "booked"


@tool
async def sleeps(ctx: BranchContext) -> str:
    await ctx.sleep(600)
    await ctx.step(note, "booked", undo=forget)
    await ctx.elicit(Number, "sure?")
    return "booked"


async def begun(desk: Desk, store: CallStore) -> InputRequiredResult:
    return asking(await desk.send(store))


async def answered(desk: Desk, store: CallStore, reply: InputRequiredResult) -> Any:
    """Return the result of the answers to ``reply``."""
    return await desk.request(desk.service(store), reply.request_state, desk.answer(reply))


async def the_call(store: CallStore) -> CallRecord:
    [record] = await store.calls(9)
    return record


# -- a reaper ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("called", "at"), [(asks_first, "move"), (does_first, "fail"), (does_first, "entries")]
)
async def test_a_call_taken_by_a_suspended_reaper_is_over(
    quick: Modelled, called: Any, at: str
) -> None:
    """The client gets ``CallExpiredError``, and the next reaper undoes the call's effects once."""
    desk = Desk(called, always(n=1))
    first = await begun(desk, quick)
    desk.clock.advance(901)
    suspended = Suspended(quick, at)
    reaping = asyncio.ensure_future(reaper(desk, suspended).expire())
    await suspended.arrived.wait()
    desk.clock.advance(16)
    with pytest.raises(CallExpiredError):
        await answered(desk, quick, first)
    assert await reaper(desk, quick).expire() == 1
    suspended.woken.set()
    assert await reaping == 0
    assert (await the_call(quick)).state == "expired"
    assert (["looked", "not looked"] if called is does_first else []) == DONE


async def test_a_call_run_by_another_worker_is_not_ended_on_request(quick: Modelled) -> None:
    desk = Desk(asks_first, always(n=1))
    first = await begun(desk, quick)
    gate = Gate(quick, "end_round")
    running = asyncio.ensure_future(answered(desk, gate, first))
    await gate.arrived.wait()
    before = await the_call(quick)
    assert not await reaper(desk, quick).end(before.call_id)
    assert await the_call(quick) == before
    gate.opened.set()
    asking(await running)
    assert await reaper(desk, quick).end(before.call_id)
    assert DONE == ["booked", "not booked"]


# -- a live call -------------------------------------------------------------------------------


async def test_a_client_that_leaves_ends_no_call_that_another_client_continues(
    quick: Modelled,
) -> None:
    desk = Desk(asks_first, always(n=1))
    waits, continues = Live("which?"), Live("sure?")
    suspended = Suspended(quick, "move")
    left = live(desk, suspended, waits)
    await waits.asked.wait()
    left.cancel()
    await suspended.arrived.wait()
    desk.clock.advance(16)
    again = live(desk, quick, continues)
    await continues.asked.wait()
    suspended.woken.set()
    await asyncio.wait({left})
    assert left.cancelled()
    assert (await the_call(quick)).state == "running"
    continues.may.set()
    assert await again == "booked"
    assert (await the_call(quick)).state == "done"


async def test_a_client_that_leaves_ends_its_call_before_another_client_runs_it(
    quick: Modelled,
) -> None:
    desk = Desk(asks_first, always(n=1))
    waits = Live("which?")
    store = Observed(quick)
    left = live(desk, store, waits)
    await waits.asked.wait()
    await cancelled(left)
    assert (await the_call(quick)).state == "failed"
    order = [store.done.get_nowait() for _ in range(store.done.qsize())]
    assert "move" in order
    assert "release" not in order


async def test_a_client_that_leaves_while_it_waits_for_another_ends_nothing(
    quick: Modelled,
) -> None:
    desk = Desk(asks_first, always(n=1))
    continues, second = Live("sure?"), Observed(quick)
    running = live(desk, quick, continues)
    await continues.asked.wait()
    waiting = live(desk, second, Live(""))
    await second.until("open_round")
    await cancelled(waiting)
    assert (await the_call(quick)).state == "running"
    continues.may.set()
    assert await running == "booked"
    assert (await the_call(quick)).state == "done"


# -- a round -----------------------------------------------------------------------------------


async def test_a_worker_with_only_a_part_of_a_round_does_not_end_the_round(quick: Modelled) -> None:
    """The call still slept for one worker; for the other, the sleep had ended, and that worker did more."""
    desk = Desk(sleeps, always(n=1))
    asleep = await begun(desk, quick)
    desk.clock.advance(400)
    late, gate = Suspended(quick, "end_round"), Gate(quick, "end_round")
    first = asyncio.ensure_future(answered(desk, late, asleep))
    await late.arrived.wait()
    desk.clock.advance(201)
    second = asyncio.ensure_future(answered(desk, gate, asleep))
    await gate.arrived.wait()
    late.woken.set()
    with pytest.raises(ToolError, match=UNAVAILABLE):
        await first
    gate.opened.set()
    assert list((await second).input_requests or {}) == ["sleeps/elicit.1"]
    desk.clock.advance(901)
    assert await reaper(desk, quick).expire() == 1
    assert DONE == ["booked", "not booked"]


async def test_a_repeated_request_delays_only_the_expiry_of_waiting_calls(quick: Modelled) -> None:
    desk = Desk(asks_first, always(n=1))
    first = await begun(desk, quick)
    suspended = Suspended(quick, "answer")
    repeated = asyncio.ensure_future(begun(desk, suspended))
    await suspended.arrived.wait()
    desk.clock.advance(800)
    asking(await answered(desk, quick, first))
    suspended.woken.set()
    assert await repeated == first
    assert (await the_call(quick)).deadline == desk.clock.now() + 900


async def test_suspended_code_does_not_adopt_a_call_that_other_code_continued(
    quick: Modelled,
) -> None:
    old, new = (Desk(asks_first, always(n=1), version=version) for version in "12")
    new.clock = old.clock
    first = await begun(old, quick)
    suspended = Suspended(quick, "adopt")
    newer = asyncio.ensure_future(answered(new, suspended, first))
    await suspended.arrived.wait()
    old.clock.advance(16)
    gate = Gate(quick, "end_round")
    older = asyncio.ensure_future(answered(old, gate, first))
    await gate.arrived.wait()
    suspended.woken.set()
    with pytest.raises(ToolError, match=UNAVAILABLE):
        await newer
    gate.opened.set()
    asking(await older)
    assert (await the_call(quick)).version == "1"
    assert DONE == ["booked"]


async def test_a_late_failure_undoes_no_work_of_another_worker(quick: Modelled) -> None:
    """The body fails for a reason of its process, such as too little memory."""
    healthy = asyncio.Event()

    @tool(name="found")
    async def fails(ctx: BranchContext) -> str:
        await ctx.step(note, "booked", undo=forget)
        if not healthy.is_set():
            raise MemoryError
        await ctx.elicit(Number, "sure?")
        return "booked"

    desk = Desk(fails, always(n=1))
    writes = Suspended(quick, "fail")
    suspended = asyncio.ensure_future(begun(desk, writes))
    await writes.arrived.wait()
    desk.clock.advance(16)
    healthy.set()
    reply = await begun(desk, quick)
    writes.woken.set()
    with pytest.raises(ToolError, match=UNAVAILABLE):
        await suspended
    assert await answered(desk, quick, reply) == Finished("booked")
    assert DONE == ["booked"]

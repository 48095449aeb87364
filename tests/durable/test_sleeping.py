"""A stored call that sleeps is a row: no task waits for its time, and no reply of it changes."""

import asyncio
from typing import Any

import pytest
from mcp.types import InputRequiredResult

from anabranch import BranchContext, tool
from anabranch._asking import Host
from anabranch._durable import CallService, Durability, Job
from anabranch._engine import Finished, Notice
from anabranch.testing import ManualClock, SequentialIds
from anabranch.tool import Runtime
from tests.durable.stores import Modelled
from tests.mcp.modern_rounds import run_round

HOUR = 3600.0
MANY = 1_000
DONE: list[int] = []


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    DONE.clear()


@tool
async def nap(ctx: BranchContext, hours: int) -> int:
    await ctx.sleep(hours * HOUR)
    return await ctx.step(do, hours)


def do(hours: int) -> int:
    DONE.append(hours)
    return hours


async def dropped(_: Notice) -> None:
    """Take a notice."""


class Sleeping:
    """A service over a store, and its clock."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = Modelled()
        runtime = Runtime(clock=self.clock, ids=SequentialIds())
        self.service = CallService(runtime, Durability(self.store))

    async def round(
        self, hours: int, state: str | None = None, *, wakes: bool = True
    ) -> Finished[Any] | InputRequiredResult:
        """The next round of a call: the first, or the one after ``state``."""
        journal = self.service.new() if state is None else await self.service.stored.load(state)
        job = Job(nap, {"hours": hours}, Host(), dropped, wakes=wakes)
        return await run_round(self.service, job, journal)

    async def asleep(self, hours: int, state: str | None = None, *, wakes: bool = True) -> str:
        """The state after a round, in which the call must sleep."""
        reply = await self.round(hours, state, wakes=wakes)
        assert isinstance(reply, InputRequiredResult)
        assert reply.input_requests is None
        return str(reply.request_state)


async def test_a_request_that_is_repeated_has_its_reply_also_when_the_time_has_come() -> None:
    calls = Sleeping()
    first = await calls.asleep(1)
    second = await calls.asleep(1, first)
    calls.clock.advance(HOUR)
    assert await calls.asleep(1, first) == second
    assert await calls.round(1, second) == Finished(1)
    assert await calls.round(1, second) == Finished(1)
    assert DONE == [1]


@pytest.mark.parametrize("wakes", [False, True], ids=["a client's", "an agent's"])
async def test_a_call_that_goes_on_by_itself_expires_after_its_sleep(wakes: bool) -> None:
    calls = Sleeping()
    first = await calls.asleep(1000, wakes=wakes)
    await calls.asleep(1000, first, wakes=wakes)
    await calls.asleep(1000, first, wakes=wakes)  # repeated
    [record] = await calls.store.calls(1)
    lasts = record.deadline - calls.clock.now()
    assert lasts == Durability(calls.store).expire_after + (1000 * HOUR if wakes else 0)


async def test_many_calls_sleep_without_a_task_and_go_on_in_the_order_of_their_times() -> None:
    calls = Sleeping()
    before = len(asyncio.all_tasks())
    places = [(number * 7919) % MANY + 1 for number in range(MANY)]  # no order at all
    states = {hours: await calls.asleep(hours) for hours in places}
    assert len(asyncio.all_tasks()) == before
    times = {hours: calls.clock.now() + hours * HOUR for hours in states}
    calls.clock.advance(50 * HOUR)
    due = [
        hours for hours in sorted(times, key=times.__getitem__) if times[hours] <= calls.clock.now()
    ]
    for hours in due:
        assert await calls.round(hours, states[hours]) == Finished(hours)
    assert [*range(1, 51)] == DONE
    assert len(asyncio.all_tasks()) == before

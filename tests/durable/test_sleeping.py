"""A sleeping stored call is only a row in the store: it needs no task, and its replies do not change."""

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
    """Ignore a notice."""


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
        """Run the next round of a call: the first, or the one after ``state``."""
        journal = self.service.new() if state is None else await self.service.stored.load(state)
        job = Job(nap, {"hours": hours}, Host(), dropped, wakes=wakes)
        return await run_round(self.service, job, journal)

    async def asleep(self, hours: int, state: str | None = None, *, wakes: bool = True) -> str:
        """Run a round in which the call must sleep, and return the state."""
        reply = await self.round(hours, state, wakes=wakes)
        assert isinstance(reply, InputRequiredResult)
        assert reply.input_requests is None
        return str(reply.request_state)


async def test_a_repeated_request_gets_the_same_reply_after_the_sleep_has_ended() -> None:
    calls = Sleeping()
    first = await calls.asleep(1)
    second = await calls.asleep(1, first)
    calls.clock.advance(HOUR)
    assert await calls.asleep(1, first) == second
    assert await calls.round(1, second) == Finished(1)
    assert await calls.round(1, second) == Finished(1)
    assert DONE == [1]


@pytest.mark.parametrize("wakes", [False, True], ids=["a client's", "an agent's"])
async def test_a_call_that_an_agent_wakes_expires_after_its_sleep(wakes: bool) -> None:
    calls = Sleeping()
    first = await calls.asleep(1000, wakes=wakes)
    await calls.asleep(1000, first, wakes=wakes)
    await calls.asleep(1000, first, wakes=wakes)  # the repeated request
    [record] = await calls.store.calls(1)
    lasts = record.deadline - calls.clock.now()
    assert lasts == Durability(calls.store).expire_after + (1000 * HOUR if wakes else 0)


async def test_many_calls_sleep_without_a_task_and_continue_in_order_of_time() -> None:
    calls = Sleeping()
    before = len(asyncio.all_tasks())
    places = [(number * 7919) % MANY + 1 for number in range(MANY)]  # in no order
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

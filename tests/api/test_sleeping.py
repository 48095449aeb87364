"""``ctx.sleep_until`` and ``ctx.sleep``: alive and replayed, alone and as a time limit on a question."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone

import pytest
from pydantic import BaseModel

from anabranch import Accepted, BranchContext, NonDeterminismError, run_tool, tool
from anabranch._engine.clock import Timer
from anabranch.messages import ElicitRequest
from anabranch.replay_check import check_replay
from anabranch.testing import ManualClock, MockClient, MockExhausted
from tests.clocks import Obliging

START = datetime.fromtimestamp(1_000_000_000, UTC)
WEEK = timedelta(days=7)


class Yes(BaseModel):
    yes: bool = True


class Watched(ManualClock):
    """A clock that says when someone sleeps by it."""

    def __init__(self) -> None:
        super().__init__()
        self.sleeper = asyncio.Event()

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        timer = super().call_at(when, callback)
        if when >= (START + WEEK).timestamp():
            self.sleeper.set()
        return timer


async def asked(ctx: BranchContext) -> str:
    answer = await ctx.elicit(Yes, "Still there?")
    return "yes" if isinstance(answer, Accepted) else answer.action


async def late(ctx: BranchContext, until: datetime) -> str:
    await ctx.sleep_until(until)
    return "too late"


@tool
async def within_a_week(ctx: BranchContext) -> str:
    """Ask, for a week."""
    return await ctx.race(ctx.branch(asked), ctx.branch(late, ctx.now() + WEEK))


async def test_a_tool_sleeps_until_a_time(replay: bool) -> None:
    clock = Obliging()

    @tool
    async def wait(ctx: BranchContext) -> datetime:
        """Sleep for a week."""
        await ctx.sleep_until((START + WEEK).astimezone(timezone(timedelta(hours=2))))
        return ctx.now()

    assert await run_tool(wait, replay=replay, clock=clock) == START + WEEK


async def test_a_sleep_of_seconds_does_not_begin_again_in_a_replay(replay: bool) -> None:
    clock = Obliging()

    @tool
    async def wait(ctx: BranchContext) -> datetime:
        """Sleep and ask, at the same time."""
        await ctx.gather(ctx.sleep(86_400), ctx.elicit(Yes, "Ready?"))
        await ctx.sleep(-1)
        return ctx.now()

    def slowly(_: ElicitRequest) -> Accepted[Yes]:
        clock.advance(3_600)
        return Accepted(Yes())

    client = MockClient(elicits=slowly)
    ended = await run_tool(wait, {}, client, replay=replay, clock=clock)
    assert ended == START + timedelta(days=1)


async def test_who_is_silent_has_lost(replay: bool) -> None:
    async def never(_: ElicitRequest) -> Accepted[Yes]:
        await asyncio.Event().wait()
        raise AssertionError

    client = MockClient(elicits=never)
    assert await run_tool(within_a_week, {}, client, replay=replay, clock=Obliging()) == "too late"


async def test_who_answers_in_time_is_heard(replay: bool) -> None:
    client = MockClient(elicits=[{"yes": True}])
    assert await run_tool(within_a_week, {}, client, replay=replay, clock=ManualClock()) == "yes"


async def test_what_is_answered_after_the_time_comes_too_late() -> None:
    """In a replay; a tool that is alive has withdrawn the question by then."""
    clock = Watched()

    async def slowly(_: ElicitRequest) -> Accepted[Yes]:
        await clock.sleeper.wait()
        clock.advance(WEEK.total_seconds())
        return Accepted(Yes())

    client = MockClient(elicits=slowly)
    assert await run_tool(within_a_week, {}, client, replay=True, clock=clock) == "too late"


async def test_what_the_client_raises_ends_the_call(replay: bool) -> None:
    with pytest.raises(MockExhausted):
        await run_tool(within_a_week, {}, MockClient(), replay=replay, clock=ManualClock())


async def test_a_time_without_its_zone_is_refused() -> None:
    @tool
    async def naive(ctx: BranchContext) -> None:
        """Sleep until a local time of who knows where."""
        await ctx.sleep_until(datetime(2030, 1, 1))  # noqa: DTZ001 - it is to be refused

    with pytest.raises(ValueError, match=r"takes a time with its zone, got 2030-01-01T00:00:00"):
        await run_tool(naive)


@pytest.mark.parametrize("seconds", [float("nan"), float("inf")])
async def test_a_number_that_is_no_time_is_refused(seconds: float) -> None:
    @tool
    async def endless(ctx: BranchContext) -> None:
        """Sleep for ever."""
        await ctx.sleep(seconds)

    with pytest.raises(ValueError, match="takes a finite number of seconds"):
        await run_tool(endless)


async def test_a_step_does_not_sleep(replay: bool) -> None:
    @tool
    async def inside(ctx: BranchContext) -> None:
        """Sleep where nothing can wait."""

        async def work() -> None:
            await ctx.sleep_until(START)

        await ctx.step(work)

    with pytest.raises(NonDeterminismError):
        await run_tool(inside, replay=replay)


async def test_a_check_does_not_wait() -> None:
    ended: list[datetime] = []

    @tool
    async def wait(ctx: BranchContext) -> None:
        """Sleep for a week, twice."""
        await ctx.sleep(WEEK.total_seconds())
        await ctx.gather(ctx.elicit(Yes, "Ready?"), ctx.sleep(WEEK.total_seconds()))
        ended.append(ctx.now())

    client = MockClient(elicits=[{"yes": True}])
    assert await check_replay(wait, {}, client, clock=ManualClock()) == []
    assert set(ended) == {START + 2 * WEEK}

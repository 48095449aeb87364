"""``ctx.sleep_until`` and ``ctx.sleep``: hot and replayed, alone and as a time limit of a question."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from pydantic import BaseModel

from anabranch import Accepted, BranchContext, run_tool, tool
from anabranch.messages import ElicitRequest
from anabranch.replay_check import check_replay
from anabranch.testing import ManualClock, MockClient
from tests.engine.clocks import Obliging

START = datetime.fromtimestamp(1_000_000_000, UTC)
WEEK = timedelta(days=7)


class Yes(BaseModel):
    yes: bool = True


async def test_a_tool_sleeps_until_a_time(replay: bool) -> None:
    clock = Obliging()

    @tool
    async def wait(ctx: BranchContext) -> datetime:
        await ctx.sleep_until((START + WEEK).astimezone(timezone(timedelta(hours=2))))
        return ctx.now()

    assert await run_tool(wait, replay=replay, clock=clock) == START + WEEK


async def test_a_sleep_of_seconds_does_not_restart_in_a_replay(replay: bool) -> None:
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


async def test_a_time_without_a_zone_is_refused() -> None:
    @tool
    async def naive(ctx: BranchContext) -> None:
        """Sleep until a local time without a time zone."""
        await ctx.sleep_until(datetime(2030, 1, 1))  # noqa: DTZ001 - it is to be refused

    with pytest.raises(ValueError, match=r"takes a time with its zone, got 2030-01-01T00:00:00"):
        await run_tool(naive)


@pytest.mark.parametrize("seconds", [float("nan"), float("inf")])
async def test_a_number_that_is_no_time_is_refused(seconds: float) -> None:
    @tool
    async def endless(ctx: BranchContext) -> None:
        await ctx.sleep(seconds)

    with pytest.raises(ValueError, match="takes a finite number of seconds"):
        await run_tool(endless)


async def test_check_replay_does_not_wait_for_a_sleep() -> None:
    ended: list[datetime] = []

    @tool
    async def wait(ctx: BranchContext) -> None:
        await ctx.sleep(WEEK.total_seconds())
        await ctx.gather(ctx.elicit(Yes, "Ready?"), ctx.sleep(WEEK.total_seconds()))
        ended.append(ctx.now())

    client = MockClient(elicits=[{"yes": True}])
    assert await check_replay(wait, {}, client, clock=ManualClock()) == []
    assert set(ended) == {START + 2 * WEEK}

"""Timeouts: of the tool, of the runtime, of a branch, over any number of rounds."""

import asyncio
import threading
from collections.abc import Callable

import pytest
from pydantic import BaseModel

from anabranch import BranchContext, BranchTimeoutError, Limits, tool
from anabranch.messages import ElicitRequest, SampleRequest
from anabranch.testing import ManualClock, MockClient, run_tool


class Yes(BaseModel):
    yes: bool = True


def answering_after(clock: ManualClock, seconds: float) -> Callable[[ElicitRequest], Yes]:
    """Return a person who takes this long for every answer."""

    def answer(_: ElicitRequest) -> Yes:
        clock.advance(seconds)
        return Yes()

    return answer


@tool
async def ask_twice(ctx: BranchContext) -> str:
    await ctx.elicit(Yes, "First?")
    await ctx.elicit(Yes, "Second?")
    return "done"


@pytest.mark.requirement("pitfall.timeouts")
async def test_a_tool_that_waits_longer_than_its_timeout_is_stopped(replay: bool) -> None:
    """Required: timeouts are enforced for the tool."""
    clock = ManualClock()

    @tool(limits=Limits(timeout=10))
    async def ask(ctx: BranchContext) -> None:
        await ctx.elicit(Yes, "Well?")
        raise AssertionError("not reached")

    client = MockClient(elicits=answering_after(clock, 11))
    with pytest.raises(BranchTimeoutError) as raised:
        await run_tool(ask, {}, client, replay=replay, clock=clock)
    assert (raised.value.path, raised.value.timeout) == ("ask", 10)
    assert "stopped after its timeout of 10 s" in str(raised.value)


@pytest.mark.requirement("pitfall.timeouts")
async def test_a_timeout_while_a_thread_works_is_a_timeout(replay: bool) -> None:
    """The thread ends first; what it has done is undone, and its error is that of the timeout."""
    clock, begun, may_end = ManualClock(), asyncio.Event(), threading.Event()
    loop, undone = asyncio.get_running_loop(), list[str]()

    def work() -> str:
        loop.call_soon_threadsafe(begun.set)
        may_end.wait()
        return "done"

    @tool(limits=Limits(timeout=10))
    async def late(ctx: BranchContext) -> str:
        return await ctx.step(work, undo=undone.append)

    running = asyncio.ensure_future(run_tool(late, {}, MockClient(), replay=replay, clock=clock))
    await begun.wait()
    clock.advance(11)
    loop.call_later(0, may_end.set)
    with pytest.raises(BranchTimeoutError):
        await running
    assert undone == ["done"]


@pytest.mark.requirement("pitfall.timeouts")
async def test_a_timeout_holds_across_rounds(replay: bool) -> None:
    """Contract: a timeout counts from the start of the call, waiting included."""
    clock = ManualClock()
    client = MockClient(elicits=answering_after(clock, 6))
    with pytest.raises(BranchTimeoutError):
        await run_tool(ask_twice, {}, client, replay=replay, clock=clock, limits=Limits(timeout=10))
    assert len(client.elicit_calls) == 2


async def test_a_call_that_is_done_in_time_is_not_stopped(replay: bool) -> None:
    """Contract: the timeout is a limit, not a duration."""
    clock = ManualClock()
    client = MockClient(elicits=answering_after(clock, 4))
    limits = Limits(timeout=10)
    result = await run_tool(ask_twice, {}, client, replay=replay, clock=clock, limits=limits)
    assert result == "done"
    clock.advance(100)  # no alarm is left that could hit anything


@pytest.mark.requirement("pitfall.timeouts")
@pytest.mark.requirement("pitfall.limits-and-branches")
async def test_a_branch_is_stopped_alone_and_its_parent_may_go_on(replay: bool) -> None:
    """Required: timeouts are enforced for a branch."""
    clock = ManualClock()

    async def slow(sub: BranchContext) -> str:
        await sub.elicit(Yes, "Slow?")
        return "in time"

    @tool
    async def outer(ctx: BranchContext) -> list[str]:
        results: list[str] = []
        for timeout in (5, 50):
            try:
                results.append(await ctx.branch(slow, timeout=timeout))
            except BranchTimeoutError as error:
                results.append(error.path)
        return results

    client = MockClient(elicits=answering_after(clock, 6))
    result = await run_tool(outer, {}, client, replay=replay, clock=clock)
    assert result == ["outer/slow#1", "in time"]


async def test_a_timeout_inside_does_not_outlast_the_one_outside(replay: bool) -> None:
    """Contract: limits only narrow."""
    clock = ManualClock()

    async def slow(sub: BranchContext) -> None:
        await sub.elicit(Yes, "Slow?")

    @tool(limits=Limits(timeout=10))
    async def outer(ctx: BranchContext) -> None:
        await ctx.branch(slow, timeout=1000)

    client = MockClient(elicits=answering_after(clock, 11))
    with pytest.raises(BranchTimeoutError) as raised:
        await run_tool(outer, {}, client, replay=replay, clock=clock)
    assert raised.value.path == "outer"


async def test_a_branch_done_in_time_stays_done_however_late_it_gets(replay: bool) -> None:
    """Contract: a replay refuses nothing that was once allowed."""
    clock = ManualClock()

    class Opaque:
        """No value that could be written down, so that the branch is replayed."""

        text = "intact"

    async def quick(sub: BranchContext) -> Opaque:
        await sub.elicit(Yes, "Quick?")
        return Opaque()

    @tool
    async def outer(ctx: BranchContext) -> str:
        result = await ctx.branch(quick, timeout=10)
        await ctx.elicit(Yes, "Then?")
        await ctx.elicit(Yes, "And then?")
        return result.text

    client = MockClient(elicits=answering_after(clock, 8))
    assert await run_tool(outer, {}, client, replay=replay, clock=clock) == "intact"


async def test_a_branch_that_was_too_late_stays_too_late(replay: bool) -> None:
    """Contract: a replay allows nothing that was once refused."""
    clock = ManualClock()
    undone: list[str] = []

    async def slow(sub: BranchContext) -> None:
        await sub.step(str, "seat", undo=undone.append)
        await sub.elicit(Yes, "Slow?")

    @tool
    async def outer(ctx: BranchContext) -> str:
        try:
            await ctx.branch(slow, timeout=5)
        except BranchTimeoutError:
            await ctx.elicit(Yes, "Then?")
            return "late"
        return "in time"

    client = MockClient(elicits=answering_after(clock, 6))
    assert await run_tool(outer, {}, client, replay=replay, clock=clock) == "late"
    assert [request.message for request in client.elicit_calls] == ["Slow?", "Then?"]
    assert undone == []


async def test_what_a_stopped_call_has_done_is_undone(replay: bool) -> None:
    """Contract: if the call fails, undos run in reverse order."""
    clock = ManualClock()
    happened: list[str] = []

    @tool(limits=Limits(timeout=10))
    async def reserve(ctx: BranchContext) -> None:
        for name in ("a", "b"):
            await ctx.step(str, name, undo=happened.append)
        await ctx.elicit(Yes, "Book?")

    client = MockClient(elicits=answering_after(clock, 11))
    with pytest.raises(BranchTimeoutError):
        await run_tool(reserve, {}, client, replay=replay, clock=clock)
    assert happened == ["b", "a"]


async def test_a_step_that_is_still_running_is_stopped(replay: bool) -> None:
    """Required: timeouts are enforced, whatever the tool is doing."""
    clock = ManualClock()
    happened: list[str] = []

    async def endless() -> None:
        try:
            clock.advance(11)
            await asyncio.Event().wait()
        finally:
            happened.append("stopped")

    @tool(limits=Limits(timeout=10))
    async def work(ctx: BranchContext) -> None:
        await ctx.step(endless)

    with pytest.raises(BranchTimeoutError):
        await run_tool(work, {}, MockClient(), replay=replay, clock=clock)
    assert happened == ["stopped"]


async def test_a_question_that_came_too_late_is_withdrawn() -> None:
    """Required: the person is not asked for an answer that is no longer awaited."""
    clock = ManualClock()
    withdrawn: list[str] = []

    async def never(request: SampleRequest) -> str:
        try:
            clock.advance(11)
            return await asyncio.Future[str]()
        finally:
            withdrawn.append(request.messages[-1].text)

    @tool(limits=Limits(timeout=10))
    async def ask(ctx: BranchContext) -> None:
        await ctx.sample("Well?")

    with pytest.raises(BranchTimeoutError):
        await run_tool(ask, {}, MockClient(samples=never), replay=False, clock=clock)
    assert withdrawn == ["Well?"]


async def test_a_timeout_of_the_authors_own_is_the_authors(replay: bool) -> None:
    """Chosen: only the deadline of the branch becomes BranchTimeoutError."""

    @tool(limits=Limits(timeout=10))
    async def work(ctx: BranchContext) -> None:
        raise TimeoutError("the database")

    with pytest.raises(TimeoutError, match="the database"):
        await run_tool(work, {}, replay=replay, clock=ManualClock())

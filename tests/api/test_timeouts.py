"""Timeouts: of the tool, of the runtime, of a branch, over any number of rounds."""

import asyncio
import threading
from collections.abc import Callable

import pytest
from pydantic import BaseModel

from anabranch import BranchContext, BranchTimeoutError, Limits, tool
from anabranch.messages import ElicitRequest
from anabranch.testing import ManualClock, MockClient, run_tool


class Yes(BaseModel):
    yes: bool = True


def answering_after(clock: ManualClock, seconds: float) -> Callable[[ElicitRequest], Yes]:
    """Return a person who takes this long for every answer."""

    def answer(_: ElicitRequest) -> Yes:
        clock.advance(seconds)
        return Yes()

    return answer


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

"""Timeouts of a tool, a runtime and a branch, over any number of rounds."""

import asyncio
import threading

import pytest

from anabranch import BranchContext, BranchTimeoutError, Limits, tool
from anabranch.testing import ManualClock, MockClient, run_tool


async def test_a_timeout_while_a_thread_works_is_a_timeout(replay: bool) -> None:
    """The call waits for the thread, undoes its work, and fails with the timeout's error."""
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

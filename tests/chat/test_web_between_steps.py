"""A process dies, or its store fails, between two steps that belong together, and nothing is lost.

The test holds the first process between the steps while another process works.
"""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from anabranch import BranchContext, tool
from anabranch._aio import cancel_and_wait
from anabranch.errors import StoreError
from anabranch.tree import NO_RESULT, Thread
from tests.agents.asking import deciding
from tests.agents.held_tools import hold_first_batch
from tests.chat.machines import Machines as Branching
from tests.chat.sleepers import Machines, ends_of
from tests.diary import DONE, forget, note

pytestmark = pytest.mark.usefixtures("nothing_done")


async def test_a_stop_before_a_tool_has_begun_ends_the_run(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reply with the call is stored by then: no run started with the reply instead of the
    stopped run.
    """
    begins = hold_first_batch(monkeypatch)
    machines = Machines(url)
    async with machines.process() as process:
        conversation = await process.begin(Thread("t1", machines.clock.now()))
        assert conversation is not None
        await conversation.say("work", "r1")
        working = asyncio.ensure_future(process.advance(machines.engine.wakes[-1]))
        await begins.wait()
        assert await conversation.stop()
        await working
        assert await ends_of(conversation) == ["cancelled"]
        assert await machines.held() is None
        tree = await process.agent.store.tree("t1")
    assert DONE == []
    assert [node.kind for node in tree.nodes] == ["user", "assistant", "results"]
    [result] = (each for each in tree.results.values() if each.tool_use_id)
    assert [block.text for block in result.content if block.type == "text"] == [NO_RESULT]


async def test_a_run_that_waits_for_a_worker_after_its_process_stays_stopped(url: str) -> None:
    """The worker that was woken for the run comes after the stop, and undoes the run's effects."""
    may_end = asyncio.Event()

    @tool
    async def dig(ctx: BranchContext) -> None:
        """Dig until the process ends, but outside of a step, which the process would wait for."""
        await ctx.step(note, "begun", undo=forget)
        await ctx.log("info", "working")
        await may_end.wait()
        await ctx.step(note, "dug", undo=forget)

    machines = Machines(url)
    async with machines.process([dig]) as first:
        conversation = await first.begin(Thread("t1", machines.clock.now()))
        assert conversation is not None
        await conversation.say("dig", "r1")
        working = asyncio.ensure_future(first.advance(machines.engine.wakes[-1]))
        async with aclosing(conversation.log.follow(0)) as following:
            async for _, events, _ in following:
                if any(b'"working"' in each for each in events):
                    break
        first.agent.suspend()
        await cancel_and_wait([working])
    may_end.set()
    async with machines.process([dig]) as second:
        conversation = await machines.open(second)
        assert await conversation.stop()
        assert await ends_of(conversation) == ["cancelled"]
        await second.advance(machines.engine.wakes[-1])
        assert await ends_of(conversation) == ["cancelled", "cancelled"]
        assert await machines.held() is None
    assert DONE == ["begun", "not begun"]


async def test_a_stop_that_fails_leaves_the_run_to_a_worker(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines = Branching(url, deciding(go="fine"))
    async with machines.process() as web, machines.process() as worker:
        conversation = await machines.begun(web)
        machines.engine.wakes.clear()

        async def fail(*_: Any) -> None:
            raise StoreError("The store cannot be reached.")

        with monkeypatch.context() as broken:
            broken.setattr(conversation.log, "read", fail)
            with pytest.raises(StoreError):
                await conversation.stop()
        await machines.engine.look(worker)
        [wake] = machines.engine.wakes
        await worker.advance(wake)
        assert await ends_of(conversation) == ["success"]

"""The periodic jobs of a chat, and the work that a process finds in the store."""

import asyncio
from dataclasses import replace

import pytest

from anabranch import BranchContext, tool
from anabranch._durable import TurnState
from anabranch.chat._web.conversations import Conversations
from anabranch.messages import ToolUseBlock
from anabranch.stores import open_run_events, open_tree_store
from anabranch.testing import calls
from anabranch.tree import Thread
from tests.chat import web
from tests.chat.machines import Machines
from tests.diary import DONE, forget, note
from tests.patience import PATIENCE
from tests.suites.turn_samples import put_turn, running
from tests.telemetry import Collected

A_DAY = 86_400.0
"""Seconds after which the call of an agent's tool expires, by default."""


async def test_a_tool_that_was_cut_off_outside_of_a_run_is_due(url: str) -> None:
    """The thread of a terminal has had no run; its turn continues once, although several processes
    start.
    """
    here = Machines(url, web.decide)
    use = ToolUseBlock(id="use", name="reserve", input={})
    async with here.process(web.reserve) as one, here.process(web.reserve) as two:
        agent = one.agent
        await agent.store.create_thread(Thread("t1", 0.0))
        said = agent.dependencies.node("t1", None, "user", "reserve")
        await agent.add([said, agent.dependencies.node("t1", said.id, "assistant", [use])])
        for each in (one, two):
            await each.upkeep.resume()
            await here.engine.look(each)
        assert {wake.call for wake in here.engine.wakes} == {"t1"}
        await here.drive(one, two)
        assert len(await here.asked(two)) == 1


async def test_a_run_that_waits_for_a_version_is_due_for_that_version(url: str) -> None:
    here = Machines(url, web.decide)
    events = open_run_events(url)
    async with here.process(code_version="1") as one, here.process(code_version="2") as two:
        await here.begun(one, "hello")
        turn = await events.turn("t1")
        assert turn is not None
        assert await events.move("t1", turn, replace(turn, version="2"))
        here.clock.advance(60.0)
        assert await one.due.claim() == []
        assert [wake.call for wake in await two.due.claim()] == ["t1"]
    await events.close()


@pytest.mark.usefixtures("nothing_done")
async def test_a_tool_whose_question_expires_is_undone(url: str) -> None:
    here = Machines(url, lambda _: calls(("use", "hold", {})))
    undone = asyncio.Event()

    def release(what: str) -> None:
        forget(what)
        undone.set()

    @tool
    async def hold(ctx: BranchContext) -> str:
        """Hold a seat, and ask for a row."""
        await ctx.step(note, "seat", undo=release)
        await ctx.elicit(web.SEAT, "Which row?")
        return "held"

    async with here.process(hold) as process, process.running(None):
        await here.begun(process)
        await here.drive(process)
        assert (len(await here.asked(process)), DONE) == (1, ["seat"])
        here.clock.advance(A_DAY)
        async with asyncio.timeout(PATIENCE), here.clock.running(1.0):
            await undone.wait()
        assert DONE == ["seat", "not seat"]


async def test_the_backlog_is_measured(collected: Collected) -> None:
    trees = open_tree_store("memory:")
    events = open_run_events(trees)
    works = running("r", "worker")
    waits = replace(works, state=TurnState.READY, owner="")
    for thread, turn in {"t1": waits, "t2": replace(waits, attempt=3), "t3": works}.items():
        await put_turn(events, thread, turn)
    await Conversations(trees, web.model()).upkeep.report_backlog()
    assert collected.metric("backlog.waiting") == {"": 2}
    assert collected.metric("backlog.running") == {"": 1}
    await trees.close()

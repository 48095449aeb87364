"""A process dies, or its store fails, between two steps that belong together: nothing is lost by that.

What another process does between the steps is done while the first is held up there.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from contextlib import aclosing
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from anabranch import BranchContext, tool
from anabranch._durable.run_events import NewEvents
from anabranch._engine.combine import cancel_and_wait
from anabranch.agents._tool_batch import ToolBatch
from anabranch.chat._web.answer_checks import AnswerRefusedError
from anabranch.chat._web.open_run import OpenRun
from anabranch.chat._web.thread_lease import AGAIN, SECONDS
from anabranch.errors import StoreError
from anabranch.messages import ElicitReply
from anabranch.tree import NO_RESULT, Node, Thread
from tests.agents.test_waiting_branches import deciding
from tests.chat.test_web_late_writers import (
    Process,
    counting,
    held_answer,
    is_answer,
    process,
)
from tests.chat.test_web_shared_branches import Machines as Branching
from tests.chat.test_web_sleeping import Machines, ends_of, events_of
from tests.chat.test_web_timed_questions import TOOLS
from tests.diary import DONE, forget, note

pytestmark = pytest.mark.usefixtures("nothing_done")


async def answer(one: Process, number: int, run: str) -> None:
    """Answer the question at the end of the tree, as a person does who has read it there."""
    asked = (await one.tree.trees.tree("t1")).nodes[-1]
    conversation = await one.conversations.find("t1", None)
    assert conversation is not None
    await conversation.answer(
        {asked.id: ElicitReply(action="accept", content={"row": number})}, run
    )


async def drive(one: Process) -> None:
    """Let time pass, and take all wakes that come, until there are none."""
    while one.engine.wakes:
        wake = one.engine.wakes.pop(0)
        one.clock.advance(max(0.0, wake.not_before - one.clock.now()))
        await one.conversations.advance(wake)


async def kinds(one: Process) -> list[str]:
    return [node.kind for node in (await one.tree.trees.tree("t1")).nodes]


async def test_an_answer_beside_one_that_is_refused_is_acted_upon(tmp_path: Path) -> None:
    """It left its tools to the run of the other, which had begun and was about to store its own."""
    url = f"sqlite:///{tmp_path}/chat.db"
    async with process(url, counting(), is_answer) as one, process(url, counting()) as two:
        _, first = await held_answer(one)
        await answer(two, 4, "r3")
        one.tree.may_go.set()
        with pytest.raises(AnswerRefusedError):
            await first
        await drive(one)
        assert await kinds(two) == ["user", "assistant", "question", "answer", "results"]


async def test_an_answer_that_a_run_was_to_take_up_is_acted_upon_when_its_worker_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It came after the run's last look into the tree, and the worker died before the next."""
    url = f"sqlite:///{tmp_path}/chat.db"
    ends, may_end = asyncio.Event(), asyncio.Event()
    async with process(url, counting()) as worker, process(url, counting()) as web:
        events: Any = vars(worker.conversations)["_events"]
        append_all = events.append_all

        async def held_up(new: Sequence[NewEvents], *, at: float) -> None:
            if any(each.release for each in new):
                ends.set()
                await may_end.wait()
            await append_all(new, at=at)

        async def die(*_: Any) -> None:
            raise StoreError("The process has died.")

        monkeypatch.setattr(events, "append_all", held_up)
        monkeypatch.setattr(worker.conversations.agent, "cut_off", die)
        working = await worker.work_on("/seat")
        await ends.wait()
        await answer(web, 3, "r2")
        may_end.set()
        with pytest.raises(StoreError):
            await working
        await drive(web)
        assert await kinds(web) == ["user", "assistant", "question", "answer", "results"]


async def test_an_answer_that_a_run_takes_up_is_looked_after_until_it_has(tmp_path: Path) -> None:
    """While another process works on the run, a worker comes again and again."""
    url = f"sqlite:///{tmp_path}/chat.db"
    async with process(url, counting(), is_answer) as one, process(url, counting()) as two:
        _, first = await held_answer(one)
        await answer(two, 4, "r3")
        for _ in range(3):
            [wake] = two.engine.wakes
            two.engine.wakes.clear()
            assert wake.not_before == two.clock.now() + SECONDS
            two.clock.advance(SECONDS)
            await two.conversations.advance(wake)
        one.tree.may_go.set()
        with pytest.raises(AnswerRefusedError):
            await first


async def test_a_run_can_be_stopped_after_a_read_of_its_events_has_failed(url: str) -> None:
    machines = Machines(url)
    async with machines.process() as process:
        events: Any = vars(process)["_events"]
        follow, failed, reads = events.follow, asyncio.Event(), count(1)

        def failing(run: str, after: int) -> Any:
            if next(reads) != 2:  # the first is that of the run's events so far
                return follow(run, after)
            failed.set()
            raise StoreError("The store cannot be reached.")

        conversation = await process.begin(Thread("t1", machines.clock.now()))
        assert conversation is not None
        await conversation.say("work", "r1")
        events.follow = failing
        working = asyncio.ensure_future(process.advance(machines.engine.wakes[-1]))
        await failed.wait()
        machines.clock.advance(AGAIN)
        assert await conversation.stop()
        await working
        assert await ends_of(conversation) == ["cancelled"]


async def test_a_stop_before_a_tool_has_begun_ends_the_run(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reply that calls it is stored by then: no run began with it instead of the one stopped."""
    run, begins = ToolBatch.run, asyncio.Event()

    async def held_up(batch: ToolBatch) -> Node:
        monkeypatch.setattr(ToolBatch, "run", run)
        begins.set()
        return await asyncio.Event().wait() and await run(batch)

    monkeypatch.setattr(ToolBatch, "run", held_up)
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


async def test_a_run_that_waits_for_a_worker_since_its_process_ended_stays_stopped(
    url: str,
) -> None:
    """The worker that was called for it comes after the stop, and undoes what it had done."""
    may_end = asyncio.Event()

    @tool
    async def dig(ctx: BranchContext) -> None:
        """Dig until the process ends, but not in a step, which it would wait for."""
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
        await worker.upkeep.call_workers()
        [wake] = machines.engine.wakes
        await worker.advance(wake)
        assert await ends_of(conversation) == ["success"]


async def test_the_end_of_a_run_and_the_alarm_after_it_are_one_step(url: str) -> None:
    """A worker that dies there has ended the run or has not; it does not end twice."""
    machines = Machines(url)
    async with machines.process(TOOLS) as process:
        events: Any = vars(process)["_events"]
        taken: list[str] = []
        take_over = events.take_over

        async def noting(run: str, owner: str, other: str, *times: float) -> bool:
            taken.append(other)
            return bool(await take_over(run, owner, other, *times))

        events.take_over = noting
        conversation = await machines.begun(process, "seat")
        assert [each["type"] for each in await events_of(conversation)][-1] == "RUN_FINISHED"
        held = await events.holder("t1", -math.inf)
        assert held is not None
        assert OpenRun.of(held).is_alarm
        assert not any(OpenRun.of(each).is_alarm for each in taken)

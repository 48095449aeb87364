"""An answer that was accepted is acted upon, however late a worker comes; one that comes too late is refused."""

from __future__ import annotations

import pytest

from anabranch import Accepted, BranchContext, tool
from anabranch.agents._agent_dependencies import EXPIRE_AFTER
from anabranch.agents._call_expiry import reaper_of
from anabranch.agents._expiry_times import GRACE
from anabranch.chat._web.answer_checks import AnswerRefusedError
from anabranch.chat._web.conversations import Conversations
from anabranch.messages import ElicitReply
from tests.chat.test_web_sleeping import Machines, ends_of
from tests.chat.test_web_timed_questions import ROW, Seat, asked
from tests.diary import DONE, forget, note

pytestmark = pytest.mark.usefixtures("nothing_done")


@tool
async def trip(ctx: BranchContext) -> str:
    """Reserve, ask, and book."""
    await ctx.step(note, "reserve", undo=forget)
    answer = await ctx.elicit(Seat, "Which row?")
    assert isinstance(answer, Accepted)
    return await ctx.step(note, f"book {answer.content.row}", undo=forget)


TOOLS = (trip,)


async def expire(process: Conversations) -> int:
    """One pass of the reaper, in this process; return how many calls it has ended."""
    return await reaper_of(process.agent.dependencies, {"trip": trip}).expire()


async def test_an_answer_in_time_is_acted_upon_however_late_a_worker_comes(url: str) -> None:
    machines = Machines(url)
    async with machines.process(TOOLS) as front:
        conversation = await machines.begun(front, "/trip")
        machines.clock.advance(EXPIRE_AFTER - 60)
        await conversation.answer({(await asked(conversation))["id"]: ROW}, "r2")
    async with machines.process(TOOLS) as worker:
        for _ in range(3):
            machines.clock.advance(EXPIRE_AFTER + GRACE)
            assert await expire(worker) == 0
        await worker.advance(machines.engine.wakes[-1])
        assert await ends_of(await machines.open(worker)) == ["interrupt", "success"]
    assert DONE == ["reserve", "book 7"]


async def test_an_answer_is_refused_before_its_call_is_undone(url: str) -> None:
    machines = Machines(url)
    async with machines.process(TOOLS) as process:
        conversation = await machines.begun(process, "/trip")
        question = (await asked(conversation))["id"]
        machines.clock.advance(EXPIRE_AFTER)
        assert await process.questions.open_in("t1") == []
        with pytest.raises(AnswerRefusedError) as refused:
            await conversation.answer({question: ROW}, "r2")
        assert refused.value.reason == "expired"
        assert await expire(process) == 0
        assert DONE == ["reserve"]
        machines.clock.advance(GRACE + 1)
        assert await expire(process) == 1
    assert DONE == ["reserve", "not reserve"]


async def test_a_question_that_was_answered_can_be_answered_differently_for_longer(
    url: str,
) -> None:
    machines = Machines(url)
    async with machines.process(TOOLS) as process:
        conversation = await machines.begun(process, "/trip")
        question = (await asked(conversation))["id"]
        await conversation.answer({question: ROW}, "r2")
        await process.advance(machines.engine.wakes[-1])
        machines.clock.advance(EXPIRE_AFTER)
        other = ElicitReply(action="accept", content={"row": 8})
        await conversation.answer_differently(question, other, "r3")
        await process.advance(machines.engine.wakes[-1])
    assert DONE == ["reserve", "book 7", "book 8"]

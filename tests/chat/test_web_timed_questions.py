"""A question with a time limit: its tool continues at the deadline, in any process, unless it is
answered.
"""

import pytest

from anabranch._durable import NewEvents
from anabranch.chat._web.conversation import Conversation
from anabranch.chat._web.conversations import Conversations
from anabranch.stores import open_run_events
from tests.chat.sleepers import DAY, ROW, WEEK, Machines, asked, ends_of, remind, seat
from tests.diary import DONE
from tests.suites.turn_samples import running

pytestmark = pytest.mark.usefixtures("nothing_done")


TOOLS = (remind, seat)
both_orders = pytest.mark.parametrize(
    "said", ["seat", "/seat limit_first=true"], ids=["ask", "limit"]
)


async def answer(
    machines: Machines, process: Conversations, conversation: Conversation, run: str = "r2"
) -> None:
    question = (await asked(conversation))["id"]
    await conversation.answer({question: ROW}, run)
    await process.advance(machines.engine.wakes[-1])


@both_orders
async def test_a_tool_continues_at_the_deadline_of_its_question(url: str, said: str) -> None:
    machines = Machines(url)
    at = machines.clock.now() + DAY
    async with machines.process(TOOLS) as process:
        conversation = await machines.begun(process, said)
        assert await ends_of(conversation) == ["interrupt"]
        assert (await asked(conversation))["metadata"]["continues_at"] == at
        [pending] = await process.questions.open_in("t1")
        assert (pending.continues_at, pending.expires_at) == (at, at)
        assert not await conversation.is_running()
        assert (await machines.work(), await process.backlog.counted(9)) == ([], (0, 0))
        assert not await conversation.stop()
        wake = machines.engine.wakes[-1]
        assert wake.not_before == at
        await process.advance(wake)  # too early
        assert await ends_of(conversation) == ["interrupt"]
    machines.clock.advance(DAY)
    async with machines.process(TOOLS) as process:
        await process.advance(wake)
        conversation = await machines.open(process)
        assert await ends_of(conversation) == ["interrupt", "success"]
        assert await process.questions.open_in("t1") == []
        await process.advance(wake)
        assert await machines.held() is None
    assert DONE == ["held", "any row"]


async def test_a_question_decided_unanswered_can_be_answered_on_another_line(url: str) -> None:
    machines = Machines(url)
    async with machines.process(TOOLS) as process:
        conversation = await machines.begun(process, "seat")
        question = (await asked(conversation))["id"]
        machines.clock.advance(DAY)
        await process.advance(machines.engine.wakes[-1])
        await conversation.answer_differently(question, ROW, "r2")
        await process.advance(machines.engine.wakes[-1])
        assert await ends_of(conversation) == ["interrupt", "success", "success"]
    assert DONE == ["held", "any row", "row 7"]


async def test_one_tool_asks_while_another_sleeps(url: str) -> None:
    """The run ends, so that the user can answer; the sleeping tool still continues at its time."""
    machines = Machines(url)
    begun = machines.clock.now()
    async with machines.process(TOOLS) as process:
        conversation = await machines.begun(process, "remind seat")
        assert await ends_of(conversation) == ["interrupt"]
        await answer(machines, process, conversation)
        assert DONE[-1] == "row 7"
        assert await conversation.is_running()
        assert await machines.work() == [("r2", "asleep", 0, begun + WEEK)]
        machines.clock.advance(WEEK)
        await process.advance(machines.engine.wakes[-1])
        assert await ends_of(conversation) == ["interrupt", "success"]
    assert sorted(DONE) == ["held", "milk", "row 7", "woken"]


async def test_a_run_without_work_keeps_the_deadline(url: str) -> None:
    machines = Machines(url)
    async with machines.process(TOOLS) as process:
        conversation = await machines.begun(process, "seat")
        await conversation.finish_empty("r2")
        machines.clock.advance(DAY)
        machines.engine.wakes.clear()  # an engine may lose all of them
        await machines.engine.look(process)
        [wake] = machines.engine.wakes
        await process.advance(wake)
        assert await ends_of(conversation) == ["interrupt", "success", "success"]
    assert DONE == ["held", "any row"]


async def test_an_answer_that_a_run_missed_is_used_when_every_wake_is_lost(url: str) -> None:
    """A process looks for answers before it ends a run, and then may die."""
    machines = Machines(url)
    events = open_run_events(url)
    async with machines.process(TOOLS) as process:
        conversation = await machines.begun(process, "seat")
        now = machines.clock.now()
        assert await events.begin("t1", running("other"), b'{"type":"RUN_STARTED"}', at=now)
        await conversation.answer({(await asked(conversation))["id"]: ROW}, "r2")
        await events.append_all(
            [NewEvents("t1", [b'{"type":"RUN_FINISHED"}'], owner="a", ends=True)], at=now
        )
        machines.engine.wakes.clear()
        await machines.engine.look(process)
        [wake] = machines.engine.wakes
        await process.advance(wake)
    await events.close()
    assert DONE == ["held", "row 7"]


async def test_a_message_of_the_user_skips_the_question_and_its_time(url: str) -> None:
    machines = Machines(url)
    async with machines.process(TOOLS) as process:
        conversation = await machines.begun(process, "seat")
        await conversation.say("/remind days=1", "r2")
        await process.advance(machines.engine.wakes[-1])
        assert DONE == ["held", "any row", "milk"]
        machines.clock.advance(WEEK)
        for wake in list(machines.engine.wakes):
            await process.advance(wake)
        assert await ends_of(conversation) == ["interrupt", "success"]
    assert DONE == ["held", "any row", "milk", "woken"]

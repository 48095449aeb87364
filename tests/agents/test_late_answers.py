"""A late answer is refused, before and after its tool has continued."""

import pytest
from pydantic import BaseModel

from anabranch import Accepted, BranchContext, Capabilities, tool
from anabranch.agents import Agent, Folding, QuestionExpiredError
from anabranch.agents._called_tool import reaper_of
from anabranch.folding import BranchService
from anabranch.mcp import Durability
from anabranch.messages import ElicitReply, SampleReply, SampleRequest
from anabranch.stores import open_branch_store
from anabranch.testing import ManualClock, MockModel, calls
from anabranch.tree import Node
from tests.agents.harness import heard
from tests.agents.memory import MemoryTrees
from tests.diary import DONE, forget, note
from tests.durable.stores import Modelled

pytestmark = pytest.mark.usefixtures("nothing_done")

MINUTE = 60.0
SEVEN = ElicitReply(action="accept", content={"row": 7})


class Seat(BaseModel):
    row: int


@tool
async def timed(ctx: BranchContext) -> str:
    """Ask for a row; after a minute, take any row."""
    answer = await ctx.race(ctx.elicit(Seat, "Which row?"), ctx.sleep(MINUTE))
    row = f"row {answer.content.row}" if isinstance(answer, Accepted) else "any row"
    return await ctx.step(note, row)


@tool
async def ask(ctx: BranchContext) -> str:
    """Hold a seat, and ask for a row."""
    await ctx.step(note, "held", undo=forget)
    answer = await ctx.elicit(Seat, "Which row?")
    return await ctx.step(note, "row" if isinstance(answer, Accepted) else "no row")


def decide(request: SampleRequest) -> SampleReply | str:
    said = heard(request)
    if said == "fold":
        fold = {"description": "Ask", "prompt": "Ask for a row.", "timeout_seconds": 60}
        return calls(("fold", "branch_create", fold))
    if said.startswith("(branch br_"):
        return calls(("ask", "ask", {}))
    return calls(("timed", "timed", {})) if said == "timed" else "Done."


class Desk:
    """An agent, its clock, and the messages that the user sent."""

    def __init__(self, expire_after: float = MINUTE) -> None:
        self.clock = ManualClock()
        self.trees = MemoryTrees()
        self.agent = Agent(
            self.trees,
            MockModel(decide),
            tools=[
                Folding(BranchService(open_branch_store("memory:"), clock=self.clock)),
                timed,
                ask,
            ],
            capabilities=Capabilities(),
            calls=Durability(Modelled(), expire_after=expire_after),
            clock=self.clock,
        )

    async def asked(self, said: str) -> Node:
        """Send a message that makes a tool ask; return the question."""
        end = await self.agent.say((await self.agent.begin()).id, said)
        [question] = await self.agent.open_questions(end)
        return question

    async def refuses(self, question: Node) -> None:
        """Check that an answer is refused in every way of answering, and that nothing is stored."""
        before = await self.trees.tree(question.thread_id)
        expired = r"The time for an answer .* is over"
        with pytest.raises(QuestionExpiredError, match=expired):
            await self.agent.add_answer(question.id, SEVEN)
        with pytest.raises(QuestionExpiredError, match=expired):
            await self.agent.answer(question.id, SEVEN)
        after = await self.trees.tree(question.thread_id)
        assert (after.nodes, after.refs) == (before.nodes, before.refs)


async def test_an_answer_after_the_sleep_that_limits_its_question_is_refused() -> None:
    desk = Desk()
    question = await desk.asked("timed")
    desk.clock.advance(MINUTE)
    await desk.refuses(question)
    await desk.agent.resume(question)
    assert DONE == ["any row"]


async def test_an_answer_after_the_time_of_a_branch_is_refused() -> None:
    desk = Desk()
    question = await desk.asked("fold")
    desk.clock.advance(MINUTE)
    await desk.refuses(question)
    await desk.agent.resume(question)  # the branch ends
    await desk.refuses(question)
    assert "row" not in DONE


async def test_an_answer_in_a_fold_is_refused_when_its_call_has_ended() -> None:
    desk = Desk(expire_after=MINUTE / 2)
    question = await desk.asked("fold")
    desk.clock.advance(MINUTE / 2)
    await desk.refuses(question)  # the reaper runs before the answer
    assert await reaper_of(desk.agent.dependencies, {"ask": ask}).expire() == 1
    await desk.refuses(question)  # or after it
    assert DONE == ["held", "not held"]


async def test_an_answer_in_time_is_taken() -> None:
    desk = Desk()
    question = await desk.asked("timed")
    desk.clock.advance(MINUTE - 1.0)
    await desk.agent.add_answer(question.id, SEVEN)
    desk.clock.advance(2.0)
    assert await desk.agent.add_answer(
        question.id, SEVEN
    )  # the same answer is accepted, since it is not late
    await desk.agent.resume(question)
    assert DONE == ["row 7"]

"""Answers to a tool's question: the first continues the call, and a different one starts another line."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from pydantic import BaseModel

from anabranch import Accepted, BranchContext, Capabilities, ToolError, tool
from anabranch.agents import Question, QuestionExpiredError
from anabranch.agents._agent_dependencies import EXPIRE_AFTER
from anabranch.messages import ElicitReply, SampleReply, SampleRequest, ToolUseBlock
from anabranch.rounds import AnswerLike, InvalidAnswerError
from anabranch.stores import CallStore, open_stores
from anabranch.testing import ManualClock, calls
from anabranch.tree import Node
from tests.agents.harness import Answering, Setting, interrupted, results_in, set_up
from tests.durable.stores import Modelled, Observed


class Seats(BaseModel):
    number: int


def seats(number: int) -> ElicitReply:
    return ElicitReply(action="accept", content={"number": number})


class Office:
    """A service that records each effect with its idempotency key."""

    def __init__(self) -> None:
        self.done: list[tuple[str, str]] = []
        self.asked = asyncio.Event()
        self.never = asyncio.Event()

    async def do(self, what: str, key: str) -> str:
        self.done.append((what, key))
        return what

    async def undo(self, what: str) -> None:
        self.done.append((f"un{what}", ""))

    async def user(self, question: Question) -> ElicitReply:
        """The user gives no answer, and the turn is interrupted."""
        self.asked.set()
        await self.never.wait()
        raise AssertionError(question)

    @property
    def names(self) -> list[str]:
        return [what for what, _ in self.done]

    def key(self, what: str) -> str:
        [key] = {key for done, key in self.done if done == what}
        return key


def decide(request: SampleRequest) -> SampleReply | str:
    used = any(isinstance(b, ToolUseBlock) for m in request.messages for b in m.content)
    return "fine" if used else calls(("use", "travel", {}))


async def office(
    store: CallStore | None,
    answer: Callable[[Question], ElicitReply | Awaitable[ElicitReply]] | None = None,
    *,
    undo: bool = False,
    clock: ManualClock | None = None,
) -> tuple[Office, Setting]:
    """Return an agent with a tool that reserves, asks for the number of seats, and books them."""
    office = Office()

    @tool
    async def travel(ctx: BranchContext) -> str:

        await ctx.step(
            office.do, "reserve", ctx.idempotency_key, undo=office.undo if undo else None
        )
        answer = await ctx.elicit(Seats, f"How many, after {len(ctx.parent_messages)}?")
        if not isinstance(answer, Accepted):
            raise ToolError("not wanted")
        await ctx.step(office.do, f"book {answer.content.number}", ctx.idempotency_key)
        return f"{answer.content.number} seats"

    user = Answering(answer or office.user)
    setting = await set_up(decide, tools=[travel], user=user, calls=store, clock=clock)
    return office, setting


async def asked_by(setting: Setting, office: Office) -> Node:
    """Start a turn, interrupt it at its question, and return the question."""
    await interrupted(setting.say("Travel"), office.asked)
    [question] = await setting.of_kind("question")
    return question


async def result(setting: Setting) -> str:
    [text] = results_in(setting.model.requests[-1].messages[-1].content).values()
    return text


async def test_a_different_answer_runs_the_effects_after_its_question() -> None:
    here, setting = await office(None, lambda _: seats(1))
    await setting.say("Travel")
    [question] = await setting.of_kind("question")
    await setting.agent.answer(question.id, seats(2))
    assert await result(setting) == "2 seats"
    assert here.names == ["reserve", "book 1", "book 2"]
    assert here.key("book 1") != here.key("book 2")
    await setting.agent.answer(question.id, seats(2))
    key = here.key("book 2")
    assert await result(setting) == "2 seats"
    assert here.names.count("book 2") == 1
    await setting.agent.answer(question.id, seats(3))
    assert here.key("book 3") not in {key, here.key("book 1")}
    await setting.check()


@pytest.mark.parametrize(
    "given",
    [{"action": "accept", "content": {"number": 2}}, Accepted(Seats(number=2)), seats(2)],
    ids=["json", "result", "reply"],
)
@pytest.mark.parametrize("stores_first", [False, True])
async def test_an_answer_has_any_form_that_rounds_take(
    given: AnswerLike, stores_first: bool
) -> None:
    here, setting = await office(None)
    question = await asked_by(setting, here)
    if stores_first:
        await setting.agent.add_answer(question.id, given)
    await setting.agent.answer(question.id, given)
    assert await result(setting) == "2 seats"


@pytest.mark.parametrize(
    "given", [{"number": 2}, True, "accept", SampleReply(content=(), model="m")]
)
async def test_an_invalid_answer_is_refused_and_the_question_stays_open(given: Any) -> None:
    here, setting = await office(None)
    question = await asked_by(setting, here)
    for answer in (setting.agent.answer, setting.agent.add_answer):
        with pytest.raises(InvalidAnswerError, match=r'it must be \{"action": "accept", "content"'):
            await answer(question.id, given)
    assert await setting.agent.open_questions(question) == [question]


async def test_an_undone_call_does_not_continue_with_another_answer() -> None:
    here, setting = await office(Modelled(), undo=True)
    question = await asked_by(setting, here)
    await setting.agent.answer(question.id, ElicitReply(action="decline"))
    assert here.names == ["reserve", "unreserve"]
    await setting.agent.answer(question.id, seats(2))
    assert "effects before the question are undone" in await result(setting)
    assert here.names == ["reserve", "unreserve"]


async def test_a_store_added_later_continues_the_calls_in_the_tree() -> None:
    here, setting = await office(None)
    question = await asked_by(setting, here)
    later, again = await office(Modelled(), lambda _: seats(9))
    again.agent.dependencies.store.__dict__.update(setting.agent.store.__dict__)
    for _ in range(2):
        await again.agent.answer(question.id, seats(1))
        assert await result(again) == "1 seats"
    await again.agent.answer(question.id, seats(2))
    assert here.names == ["reserve"]
    assert later.names == ["book 1", "book 2"]


# -- questions that are never answered -----------------------------------------------------------


async def expired(setting: Setting, store: Observed, clock: ManualClock) -> None:
    """Let a day pass, and run one pass of the reaper."""
    clock.advance(EXPIRE_AFTER)
    while not store.done.empty():
        store.done.get_nowait()
    reaping = asyncio.ensure_future(setting.agent.expire_calls())
    await store.until("move")
    reaping.cancel()
    await asyncio.wait({reaping})


@pytest.mark.parametrize("is_given", [True, False], ids=["with calls=", "without calls="])
async def test_an_expired_question_runs_the_undo_steps_in_another_process(is_given: bool) -> None:
    """Without ``calls=``, the calls are in the database of the conversations."""
    clock, undone = ManualClock(), asyncio.Event()
    calls_store, trees = open_stores("memory:")

    async def release(seat: str) -> None:
        undone.set()

    @tool
    async def travel(ctx: BranchContext) -> None:
        await ctx.step(lambda: "seat", name="reserve", undo=release)
        await ctx.elicit(Seats, "How many?")

    async def process() -> Setting:
        given = calls_store if is_given else None
        return await set_up(
            decide,
            tools=[travel],
            store=trees,
            calls=given,
            clock=clock,
            capabilities=Capabilities(),
        )

    question = await (await process()).say("Travel")
    clock.advance(EXPIRE_AFTER)
    other = await process()
    reaping = asyncio.ensure_future(other.agent.expire_calls())
    await undone.wait()
    reaping.cancel()
    await asyncio.wait({reaping})
    with pytest.raises(QuestionExpiredError, match="its call has ended"):
        await other.agent.answer(question.id, seats(1))
    await trees.close()


async def test_a_replay_sees_the_conversation_of_the_call() -> None:
    clock, store = ManualClock(), Observed(Modelled())
    undone: list[str] = []
    here = Office()

    def reserve() -> str:
        return "seat"

    @tool
    async def trip(ctx: BranchContext) -> None:
        """Ask a question that depends on the conversation, and another one."""
        await ctx.elicit(Seats, f"How many, after {len(ctx.parent_messages)}?")
        await ctx.step(reserve, undo=undone.append)
        await ctx.elicit(Seats, "Sure?")

    def reply(request: SampleRequest) -> SampleReply | str:
        return calls(("use", "trip", {})) if len(request.messages) == 3 else "fine"

    async def user(question: Question) -> ElicitReply:
        return seats(1) if "How many" in question.message else await here.user(question)

    setting = await set_up(reply, tools=[trip], user=Answering(user), clock=clock, calls=store)
    await setting.say("Hello")
    await interrupted(setting.say("Travel"), here.asked)
    assert undone == []
    await expired(setting, store, clock)
    assert undone == ["seat"]

"""A user interrupts a turn, as by Ctrl-C: the steps that its tool has run."""

import asyncio

import pytest

from anabranch import BranchContext, tool
from anabranch.agents import Question
from anabranch.messages import ElicitReply, SampleReply, SampleRequest, ToolUseBlock
from anabranch.testing import ModelFunction, calls
from tests.agents.asking import Confirm
from tests.agents.harness import Answering, Setting, fork, heard, interrupted, results_in, set_up

YES = ElicitReply(action="accept", content={"ok": True})


class Hall:
    """A service that reserves and releases seats."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.working = asyncio.Event()

    def reserve(self) -> str:
        self.done.append("reserve")
        return "seat"

    def release(self, what: str) -> None:
        self.done.append(f"release {what}")

    async def never(self) -> None:
        self.working.set()
        await asyncio.Event().wait()


def using(name: str) -> ModelFunction:
    """A model that calls a tool once."""

    def decide(request: SampleRequest) -> SampleReply | str:
        used = any(isinstance(b, ToolUseBlock) for m in request.messages for b in m.content)
        return "fine" if used else calls(("use", name, {}))

    return decide


async def test_a_tool_that_is_interrupted_at_its_question_is_not_undone() -> None:
    hall, asked = Hall(), asyncio.Event()

    async def wait(_: Question) -> ElicitReply:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError("it is never answered")

    @tool
    async def book(ctx: BranchContext) -> str:
        seat = await ctx.step(hall.reserve, undo=hall.release)
        await ctx.elicit(Confirm, f"Take the {seat}?")
        return f"the {seat} is taken"

    setting = await set_up(using("book"), tools=[book], user=Answering(wait))
    await interrupted(setting.say("Go"), asked)
    assert hall.done == ["reserve"]

    [question] = await setting.of_kind("question")
    await setting.agent.answer(question.id, YES)

    results = results_in(setting.model.requests[-1].messages[-1].content)
    assert list(results.values()) == ["the seat is taken"]
    assert hall.done == ["reserve"]
    await setting.check()


async def test_a_branch_that_is_cancelled_from_inside_interrupts_its_turn() -> None:
    """Excludes a turn that ends as if the branch waited for an answer, although no question is open."""

    def decide(request: SampleRequest) -> SampleReply | str:
        if heard(request).endswith("lost"):
            raise asyncio.CancelledError
        return fork("lost", "found") if heard(request) == "Go" else "found it"

    setting = await set_up(decide)
    with pytest.raises(asyncio.CancelledError):
        await setting.say("Go")
    end = await setting.agent.resume(await setting.caller())
    assert "1/2 branches completed" in str(setting.model.requests[-1].messages[-1].content)
    assert end.text == "found it"
    await setting.check()


# -- the idempotency keys of a call that runs again ----------------------------------------------


class Service:
    """A service with idempotency keys; in the first process, a call never returns."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.called = asyncio.Event()
        self.lives = False

    async def charge(self, key: str) -> str:
        self.keys.append(key)
        return "charged"

    async def refund(self, what: str) -> None:
        self.keys.append(f"not {what}")

    async def reply(self) -> str:
        self.called.set()
        if not self.lives:
            await asyncio.Event().wait()
        return "done"


async def charging(service: Service, *, undo: bool) -> Setting:
    """Return an agent whose tool charges, and then waits for ever in the first process."""

    @tool
    async def pay(ctx: BranchContext) -> str:
        await ctx.step(service.charge, ctx.idempotency_key, undo=service.refund if undo else None)
        return await service.reply()

    return await set_up(using("pay"), tools=[pay])


async def test_different_tool_uses_have_different_keys() -> None:
    service = Service()
    service.lives = True
    for _ in range(2):
        await (await charging(service, undo=False)).say("Pay")
    first, second = service.keys
    assert first != second


@pytest.mark.parametrize("undo", [True, False])
async def test_an_interrupted_call_does_not_run_again_under_the_same_keys(undo: bool) -> None:
    service = Service()
    setting = await charging(service, undo=undo)
    await interrupted(setting.say("Go"), service.called)
    assert service.keys[1:] == ["not charged"] * undo
    service.lives = True
    end = await setting.agent.resume(await setting.caller())
    assert len(service.keys) == 1 + undo
    assert end.text == "fine"
    assert "interrupted" in str(setting.model.requests[-1].messages[-1].content)
    await setting.check()


async def test_a_suspended_call_continues_after_its_recorded_effects() -> None:
    service = Service()
    setting = await charging(service, undo=False)
    setting.agent.suspend()
    await interrupted(setting.say("Go"), service.called)
    service.lives = True
    await setting.agent.resume(await setting.caller())
    assert len(service.keys) == 1
    await setting.check()


async def test_an_interruption_undoes_effects_before_an_answered_question() -> None:
    hall, asked = Hall(), list[Question]()

    @tool
    async def book(ctx: BranchContext) -> str:
        """Reserve a seat, ask, and work for ever."""
        await ctx.step(hall.reserve, undo=hall.release)
        await ctx.elicit(Confirm, "Take it?")
        await ctx.step(hall.never)
        return "never"

    def yes(question: Question) -> ElicitReply:
        asked.append(question)
        return YES

    setting = await set_up(using("book"), tools=[book], user=Answering(yes))
    await interrupted(setting.say("Go"), hall.working)
    assert hall.done == ["reserve", "release seat"]
    head = await setting.agent.head(setting.thread_id)
    answer = await setting.agent.store.node(head or "")
    assert answer is not None
    end = await setting.agent.resume(answer)
    assert (end.text, len(asked)) == ("fine", 1)
    assert hall.done == ["reserve", "release seat"]
    await setting.check()

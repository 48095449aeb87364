"""A sleeping tool ends its turn, and any process continues; with a user present, the tool waits alive."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from pydantic import BaseModel

from anabranch import Answerer, BranchContext, Capabilities, tool
from anabranch._aio import Timer
from anabranch._asking import Absent
from anabranch.agents import Agent, BranchSelf, Event, Folding, ToolSuspended
from anabranch.folding import BranchService
from anabranch.mcp import Durability
from anabranch.messages import ElicitReply, SampleReply, SampleRequest
from anabranch.stores import open_branch_store
from anabranch.testing import ManualClock, MockModel, calls
from anabranch.tree import Node, open_questions
from tests.agents.harness import heard
from tests.agents.memory import MemoryTrees
from tests.diary import DONE, forget, note
from tests.durable.stores import Modelled

WEEK = 7 * 86_400.0
DAY = 86_400.0
pytestmark = pytest.mark.usefixtures("nothing_done")


@tool
async def remind(ctx: BranchContext) -> str:
    """Note a line, and remind of it after a week."""
    noted = await ctx.step(note, "milk", undo=forget)
    await ctx.sleep(WEEK)
    return f"Remember: {noted}"


class Yes(BaseModel):
    ok: bool


@tool
async def ask(ctx: BranchContext) -> str:
    """Ask, and sleep after any answer."""
    answer = await ctx.elicit(Yes, "Go?")
    await ctx.step(note, answer.action, undo=forget)
    await ctx.sleep(DAY)
    return "Slept."


@tool
async def hold(ctx: BranchContext) -> str:
    await ctx.step(note, "reserved", undo=forget)
    answer = await ctx.elicit(Yes, "Keep it?")
    return await ctx.step(note, answer.action)


IN_BRANCH = ("fork", "branch_self", {"prompts": ["hold"], "allow_work": True})
BOTH = ("fork", "branch_self", {"prompts": ["hold", "remind"], "allow_work": True})
FOLDED = ("fold", "branch_create", {"description": "Both", "prompt": "Hold and remind."})
ASLEEP: tuple[str, str, dict[str, Any]] = ("use", "remind", {})
CALLS: dict[str, list[tuple[str, str, dict[str, Any]]]] = {
    "both": [BOTH],
    "fold": [FOLDED],
    "(branch": [("held", "hold", {}), ASLEEP],
    "beside": [IN_BRANCH, ASLEEP],
}


def decide(request: SampleRequest) -> SampleReply:
    """Call the named tool once."""
    said = heard(request).removeprefix("(self-prompt): ").partition(" ")[0]
    if said == "fork":
        wanted = {"prompts": ["remind", "nothing"], "allow_work": True}
        return calls(("fork", "branch_self", wanted))
    if said in CALLS:
        return calls(*CALLS[said])
    return calls(("use", said, {})) if said in {"remind", "ask", "hold"} else calls(text="Done.")


class Watched(ManualClock):
    """A clock that reports when a turn waits for a call; within a round, the call itself waits."""

    def __init__(self) -> None:
        super().__init__()
        self.asleep = asyncio.Event()

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        owner = getattr(callback, "__self__", None)
        if when - self.now() > DAY and isinstance(owner, asyncio.Event):
            self.asleep.set()
        return super().call_at(when, callback)


class Setting:
    def __init__(self, user: Answerer | None = None) -> None:
        self.clock = Watched()
        self.trees = MemoryTrees()
        self.branches = BranchService(open_branch_store("memory:"), clock=self.clock)
        self.store = Modelled()
        self.user = user
        self.slept: list[tuple[str, float]] = []

    def agent(self) -> Agent:
        return Agent(
            self.trees,
            MockModel(decide),
            tools=[remind, ask, hold, BranchSelf(), Folding(self.branches)],
            user=self.user,
            listener=self.listen,
            calls=Durability(self.store, expire_after=DAY),
            clock=self.clock,
            capabilities=Capabilities(),
        )

    async def listen(self, event: Event) -> None:
        if isinstance(event, ToolSuspended):
            self.slept.append((event.caller, event.until))

    async def begun(self, text: str) -> Node:
        """Return the end of the turn."""
        agent = self.agent()
        return await agent.say((await agent.begin()).id, text)

    async def asleep(self) -> asyncio.Task[Node]:
        """Start a turn whose tool sleeps."""
        turn = asyncio.ensure_future(self.begun("remind"))
        waiting = asyncio.ensure_future(self.clock.asleep.wait())
        await asyncio.wait({turn, waiting}, return_when=asyncio.FIRST_COMPLETED)
        assert not turn.done(), turn.result()
        return turn


async def test_a_turn_continues_when_its_tool_has_slept_with_a_user_present() -> None:
    setting = Setting(Absent())
    turn = await setting.asleep()
    setting.clock.advance(WEEK)
    assert (await turn).text == "Done."
    assert (DONE, setting.slept) == (["milk"], [])


async def test_a_call_that_is_stopped_in_its_sleep_is_undone() -> None:
    turn = await Setting(Absent()).asleep()
    turn.cancel()
    with suppress(asyncio.CancelledError):
        await turn
    assert DONE == ["milk", "not milk"]


async def test_the_turn_of_a_sleeping_stored_call_ends_and_continues_at_its_time() -> None:
    setting = Setting()
    caller = await setting.begun("remind")
    until = setting.clock.now() + WEEK
    assert setting.slept == [(caller.id, until)]
    agent = setting.agent()
    assert await agent.cut_off(caller.thread_id) == caller
    assert await agent.cut_off(caller.thread_id, {(caller.id, "use")}) is None
    setting.clock.advance(DAY)
    assert await agent.resume(caller) == caller  # before its time
    assert setting.slept == [(caller.id, until)] * 2
    setting.clock.advance(WEEK - DAY)
    assert (await setting.agent().resume(caller)).text == "Done."
    assert DONE == ["milk"]


async def test_a_call_that_sleeps_is_undone_where_its_turn_is_stopped() -> None:
    setting = Setting()
    caller = await setting.begun("remind")
    agent = setting.agent()
    await agent.interrupt_tools(caller.thread_id)
    assert DONE == ["milk", "not milk"]
    assert await agent.cut_off(caller.thread_id) is None
    await agent.interrupt_tools(caller.thread_id)
    assert (await agent.say(caller.thread_id, "more")).text == "Done."
    assert DONE == ["milk", "not milk"]


async def test_a_stopped_call_whose_lease_a_dead_process_has_is_due_at_once() -> None:
    """The next pass over expired calls undoes the call, once the lease has run out."""
    setting = Setting()
    caller = await setting.begun("remind")
    [record] = await setting.store.calls(limit=10)
    now = setting.clock.now()
    assert await setting.store.open_round(record.call_id, 9, "dead", now, now + 15)
    await setting.agent().interrupt_tools(caller.thread_id)
    [record] = await setting.store.calls(limit=10)
    assert (record.state, record.deadline, DONE) == ("running", now, ["milk"])


async def test_a_tool_with_skipped_questions_does_not_sleep() -> None:
    setting = Setting()
    agent, question = setting.agent(), await setting.begun("ask")
    await agent.cancel_questions(question)
    assert (DONE, setting.slept) == (["cancel", "not cancel"], [])
    assert await agent.cut_off(question.thread_id) is None


async def test_a_branch_waits_for_its_tool_that_sleeps() -> None:
    setting = Setting()
    caller = await setting.begun("fork")
    [(inside, until)] = setting.slept
    agent = setting.agent()
    assert until == setting.clock.now() + WEEK
    assert await agent.cut_off(caller.thread_id) == caller
    assert await agent.cut_off(caller.thread_id, {(inside, "use")}) is None
    setting.clock.advance(WEEK)
    assert (await agent.resume(caller)).text == "Done."
    assert DONE == ["milk"]


@pytest.mark.parametrize("said", ["both", "fold"])
async def test_a_stop_skips_a_question_next_to_a_sleep_in_branches(said: str) -> None:
    setting = Setting()
    end = await setting.begun(said)
    agent = setting.agent()
    assert len(await agent.open_questions(end)) == 1
    await agent.interrupt_tools(end.thread_id)
    assert sorted(DONE) == ["milk", "not milk", "not reserved", "reserved"]
    tree = await setting.trees.tree(end.thread_id)
    assert [each.text for each in tree.nodes if each.kind == "answer"] == ["left unanswered"]
    assert open_questions(tree) == []
    assert {each.state for each in await setting.store.calls(limit=10)} == {"stopped"}


async def test_a_branch_that_only_waits_for_the_user_still_waits_after_a_stop() -> None:
    setting = Setting()
    end = await setting.begun("beside")
    agent = setting.agent()
    [question] = await agent.open_questions(end)
    await agent.interrupt_tools(end.thread_id)
    assert sorted(DONE) == ["milk", "not milk", "reserved"]
    assert open_questions(await setting.trees.tree(end.thread_id)) == [question]
    await agent.answer(question.id, ElicitReply(action="decline"))
    assert "decline" in DONE

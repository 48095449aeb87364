"""A call whose questions are answered does not expire: it waits for a worker, and not for a user.

An unanswered question still expires. A new agent does each step, as another process would.
"""

import asyncio
from typing import Any

import pytest

from anabranch import BranchContext, Capabilities, OtherVersionError, tool
from anabranch.agents import Agent, BranchSelf, add_reply
from anabranch.agents._agent_dependencies import EXPIRE_AFTER
from anabranch.agents._called_tool import LONGEST_WAIT, reaper_of
from anabranch.messages import ElicitReply, SampleReply, SampleRequest
from anabranch.stores import CallStore
from anabranch.testing import ManualClock, MockModel, calls
from anabranch.tool import Tool
from anabranch.tree import Node, TreeStore
from tests.agents.asking import Number, asked, number, results
from tests.agents.harness import heard
from tests.agents.memory import MemoryTrees
from tests.diary import DONE, forget, note
from tests.durable.stores import Modelled

pytestmark = pytest.mark.usefixtures("nothing_done")

IN_TIME = EXPIRE_AFTER - 60
DAY = 86_400.0


@tool
async def trip(ctx: BranchContext) -> str:
    await ctx.step(note, "reserve", undo=forget)
    first = await asked(ctx, "How many?")
    await ctx.step(note, f"book {first}", undo=forget)
    return f"{first}, {await asked(ctx, 'Sure?')}"


@tool
async def pair(ctx: BranchContext) -> str:
    """Reserve, and ask two questions at the same time."""
    await ctx.step(note, "reserve", undo=forget)
    both = (ctx.branch(asked, "left?"), ctx.branch(asked, "right?"))
    return " ".join(await ctx.gather(*both))


@tool
async def nap(ctx: BranchContext) -> str:
    """Ask, and sleep for two days."""
    await ctx.step(note, "reserve", undo=forget)
    said = await ctx.step(note, await asked(ctx, "Go?"), undo=forget)
    await ctx.sleep(2 * DAY)
    await ctx.step(note, "woken")
    return said


@tool
async def limited(ctx: BranchContext) -> str:
    """Ask two questions at the same time, one of them for at most two days."""
    await ctx.step(note, "reserve", undo=forget)

    async def in_time(ctx: BranchContext) -> str:
        answer = await ctx.race(ctx.elicit(Number, "In time?"), ctx.sleep(2 * DAY))
        return "over" if answer is None else "answered"

    both = (ctx.branch(in_time), ctx.branch(asked, "Ever?"))
    return " ".join(await ctx.gather(*both))


@tool(name="trip")
async def other_trip(ctx: BranchContext) -> str:
    return await ctx.step(note, "walk", name="walk")


TOOLS = {each.name: each for each in (trip, pair, nap, limited)}


def decide(request: SampleRequest) -> SampleReply | str:
    said = heard(request).removeprefix("(self-prompt): ").partition(" ")[0]
    if said == "fork":
        return calls(("fork", "branch_self", {"prompts": ["trip"], "allow_work": True}))
    if said in TOOLS:
        return calls(("use", said, {}))
    return results(request) or "Hm."


class Desk:
    """The stores, a clock, and agents over them."""

    def __init__(self) -> None:
        self.trees: TreeStore = MemoryTrees()
        self.store: CallStore = Modelled()
        self.clock = ManualClock()
        self.model = MockModel(decide)

    def agent(self, version: str | None = None, *tools: Tool[Any]) -> Agent:
        return Agent(
            self.trees,
            self.model,
            tools=[BranchSelf(), *(tools or TOOLS.values())],
            capabilities=Capabilities(),
            calls=self.store,
            clock=self.clock,
            code_version=version,
        )

    async def begin(self, said: str) -> Node:
        agent = self.agent()
        return await agent.say((await agent.begin()).id, said)

    async def questions(self, node: Node) -> dict[str, str]:
        return {each.text: each.id for each in await self.agent().open_questions(node)}

    async def add(self, question: str, reply: ElicitReply, *, again: bool = False) -> Node:
        return await add_reply(self.agent(), question, reply, again=again)

    async def expire(self) -> int:
        """Run one pass of the reaper; return the number of calls that it ended."""
        return await reaper_of(self.agent().dependencies, {**TOOLS}).expire()


async def answered(desk: Desk, said: str = "trip") -> Node:
    """Return a call that was answered just before its deadline, which has passed now."""
    [question] = (await desk.questions(await desk.begin(said))).values()
    desk.clock.advance(IN_TIME)
    node = await desk.add(question, number(2))
    desk.clock.advance(120)
    return node


@pytest.mark.parametrize("days", [0, 29])
async def test_a_call_answered_in_time_continues_when_a_worker_comes_late(days: int) -> None:
    desk = Desk()
    node = await answered(desk)
    for _ in range(days):
        assert await desk.expire() == 0
        desk.clock.advance(DAY)
    assert await desk.expire() == 0
    end = await desk.agent().resume(node)
    assert DONE == ["reserve", "book 2"]
    assert [*await desk.questions(end)] == ["Sure?"]


async def test_a_call_that_was_answered_waits_for_its_code_longer_than_for_a_user() -> None:
    desk = Desk()
    node = await answered(desk)
    with pytest.raises(OtherVersionError):
        await desk.agent("other", other_trip).resume(node)
    desk.clock.advance(2 * DAY)
    assert await desk.expire() == 0
    await desk.agent().resume(node)
    assert DONE == ["reserve", "book 2"]


async def test_the_next_question_of_an_answered_call_expires() -> None:
    desk = Desk()
    await desk.agent().resume(await answered(desk))
    desk.clock.advance(EXPIRE_AFTER - 1)
    assert await desk.expire() == 0
    desk.clock.advance(1)
    assert await desk.expire() == 1
    assert DONE == ["reserve", "book 2", "not book 2", "not reserve"]


async def test_a_call_with_an_unanswered_question_expires() -> None:
    desk = Desk()
    open_now = await desk.questions(await desk.begin("pair"))
    desk.clock.advance(IN_TIME)
    await desk.add(open_now["left?"], number(1))
    desk.clock.advance(59)
    assert await desk.expire() == 0
    desk.clock.advance(1)
    assert await desk.expire() == 1
    assert DONE == ["reserve", "not reserve"]


async def test_a_call_that_sleeps_after_its_answer_wakes_late() -> None:
    desk = Desk()
    node = await answered(desk, "nap")
    await desk.agent().resume(node)
    desk.clock.advance(4 * DAY)
    assert await desk.expire() == 0
    await desk.agent().resume(node)
    assert DONE == ["reserve", "2", "woken"]


async def test_a_call_waits_for_a_worker_after_its_last_two_answers_come_at_the_same_time() -> None:
    desk = Desk()
    open_now = await desk.questions(await desk.begin("pair"))
    desk.clock.advance(IN_TIME)
    await asyncio.gather(*(desk.add(each, number(1)) for each in open_now.values()))
    desk.clock.advance(DAY)
    assert await desk.expire() == 0


async def test_a_question_next_to_a_sleep_expires_after_the_end_of_the_sleep() -> None:
    desk = Desk()
    open_now = await desk.questions(await desk.begin("limited"))
    assert sorted(open_now) == ["Ever?", "In time?"]
    desk.clock.advance(2 * DAY + EXPIRE_AFTER - 1)
    assert await desk.expire() == 0
    desk.clock.advance(1)
    assert await desk.expire() == 1


async def test_an_answer_counts_when_another_question_has_expired() -> None:
    desk = Desk()
    node = await desk.begin("limited")
    node = await desk.add((await desk.questions(node))["Ever?"], number(3))
    desk.clock.advance(2 * DAY + EXPIRE_AFTER + 1)
    assert await desk.expire() == 0
    assert (await desk.agent().resume(node)).text == "over 3"


async def test_another_answer_starts_a_line_of_a_call_that_has_continued() -> None:
    """The call has continued to its next question, whose deadline has passed when a worker takes
    the answer.
    """
    desk = Desk()
    [first] = (await desk.questions(await desk.begin("trip"))).values()
    await desk.agent().answer(first, number(1))
    desk.clock.advance(IN_TIME)
    node = await desk.add(first, number(2), again=True)
    desk.clock.advance(120)
    assert await desk.expire() == 0
    await desk.agent().resume(node)
    assert DONE == ["reserve", "book 1", "book 2"]
    desk.clock.advance(LONGEST_WAIT)
    assert await desk.expire() == 2


async def test_a_call_that_waited_a_month_for_a_worker_is_given_up() -> None:
    desk = Desk()
    await answered(desk)
    desk.clock.advance(LONGEST_WAIT)
    assert await desk.expire() == 1
    assert DONE == ["reserve", "not reserve"]

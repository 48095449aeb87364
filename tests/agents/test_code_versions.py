"""Calls of an agent that other code has started wait unchanged, and everything else continues."""

from collections.abc import Sequence
from typing import Any

import pytest

from anabranch import BranchContext, Capabilities, OtherVersionError, tool
from anabranch.agents import Agent, BranchSelf, Event, Folding, ToolNoticed
from anabranch.folding import BranchService
from anabranch.messages import ElicitReply, SampleReply, SampleRequest
from anabranch.stores import open_branch_store
from anabranch.testing import MockModel, calls
from anabranch.tool import Tool
from anabranch.tree import Node
from tests.agents.asking import Number, results
from tests.agents.harness import heard
from tests.agents.memory import MemoryTrees
from tests.diary import DONE, forget, note
from tests.durable.stores import Modelled

pytestmark = pytest.mark.usefixtures("nothing_done")


@tool
async def book(ctx: BranchContext, name: str = "seat") -> str:
    await ctx.step(note, name, undo=forget)
    return (await ctx.elicit(Number, f"{name}?")).action


@tool(name="book")
async def book_otherwise(ctx: BranchContext, name: str = "seat") -> str:
    await ctx.step(note, name, undo=forget, name="hold")
    return (await ctx.elicit(Number, f"{name}?")).action


@tool(name="book")
async def book_numbered(ctx: BranchContext, number: int) -> str:
    return str(number)


@tool(name="note")
async def note_down(ctx: BranchContext) -> str:
    """Ask, with the same question in each version."""
    await ctx.elicit(Number, "note?")
    return await ctx.step(note, "noted")


class Conversation:
    """Agents of several versions over the same stores."""

    def __init__(self, *uses: tuple[str, str, dict[str, Any]], inside: SampleReply | None) -> None:
        self.trees = MemoryTrees()
        self.store = Modelled()
        self.events: list[Event] = []
        self.branches = BranchService(open_branch_store("memory:"))

        def decide(request: SampleRequest) -> SampleReply | str:
            said = heard(request)
            if said == "go":
                return calls(*uses)
            if inside is not None and said:
                return inside
            return f"said: {results(request)}"

        self.model = MockModel(decide)

    def agent(self, version: str, *tools: Tool[Any]) -> Agent:
        async def listen(event: Event) -> None:
            self.events.append(event)

        return Agent(
            self.trees,
            self.model,
            tools=[*tools, BranchSelf(), Folding(self.branches)],
            capabilities=Capabilities(),
            calls=self.store,
            listener=listen,
            code_version=version,
        )

    async def begin(self) -> Node:
        agent = self.agent("1", book, note_down)
        return await agent.say((await agent.begin()).id, "go")

    async def answer(self, agent: Agent, node: Node) -> None:
        """Answer all questions, without continuing the calls."""
        for each in await agent.open_questions(node):
            await agent.add_answer(each.id, ElicitReply(action="accept", content={"n": 1}))

    async def resume(self, agent: Agent, node: Node) -> Node:
        ready = await agent.cut_off(node.thread_id)
        assert ready is not None
        return await agent.resume(ready)

    def noticed(self) -> list[str]:
        return [each.notice.message for each in self.events if isinstance(each, ToolNoticed)]


@pytest.mark.parametrize(
    "changed", [[book_otherwise], [book_numbered], []], ids=["way", "arguments", "gone"]
)
async def test_a_call_waits_for_its_code_as_others_continue(changed: Sequence[Tool[Any]]) -> None:
    here = Conversation(("a", "book", {"name": "seat"}), ("b", "note", {}), inside=None)
    node = await here.begin()
    await here.answer(here.agent("1", book, note_down), node)
    new = here.agent("2", *changed, note_down)
    for _ in range(2):
        with pytest.raises(OtherVersionError):
            await here.resume(new, node)
    assert DONE == ["seat", "noted"]
    assert set(here.noticed()) == {"This waits for a process with version '1' of the tools' code."}

    end = await here.resume(here.agent("1", book, note_down), node)
    assert end.text == "said: accept, noted"
    assert DONE == ["seat", "noted"]


@pytest.mark.parametrize(
    "opens",
    [
        ("fork", "branch_self", {"prompts": ["a"], "allow_work": True}),
        ("fork", "branch_create", {"description": "a", "prompt": "book a seat"}),
    ],
    ids=["branch_self", "folding"],
)
async def test_a_branch_waits_with_the_call_in_it(opens: tuple[str, str, dict[str, Any]]) -> None:
    inside = calls(("a", "book", {"name": "seat"}))
    here = Conversation(opens, ("b", "note", {}), inside=inside)
    node = await here.begin()
    new = here.agent("2", book_otherwise, note_down)
    await here.answer(new, node)
    with pytest.raises(OtherVersionError):
        await here.resume(new, node)
    assert DONE == ["seat", "noted"]

    end = await here.resume(here.agent("1", book, note_down), node)
    assert end.text.startswith("said: ")
    assert "said: accept" in end.text
    assert DONE == ["seat", "noted"]


async def test_the_version_of_the_code_is_recorded_with_its_calls() -> None:
    here = Conversation(("a", "book", {"name": "seat"}), inside=None)
    await here.begin()
    [record] = await here.store.calls(10)
    assert record.version == "1"

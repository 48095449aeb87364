"""The agent's user, model and application decide which capabilities its tools have."""

from typing import Any

import pytest
from pydantic import BaseModel

from anabranch import BranchContext, Capabilities, tool
from anabranch._asking import Absent
from anabranch.agents import Agent
from anabranch.messages import ElicitReply, SampleReply, SampleRequest, ToolUseBlock
from anabranch.testing import MockModel, calls
from tests.agents.harness import Answering, results_in
from tests.agents.memory import MemoryTrees

STARTED: list[str] = []


class Confirm(BaseModel):
    ok: bool


@tool(requires={"elicitation"})
async def book(ctx: BranchContext) -> str:
    STARTED.append("book")
    return (await ctx.elicit(Confirm, "Book?")).action


@tool(requires={"sampling"})
async def think(ctx: BranchContext) -> str:
    STARTED.append("think")
    return (await ctx.sample("Think.")).text


@tool(requires={"sampling.tools"})
async def work(ctx: BranchContext) -> str:
    STARTED.append("work")
    return "done"


class Mute(MockModel):
    """A model that leads a conversation, and does not sample for tools."""

    capabilities: Capabilities = Capabilities(sampling=False, sampling_tools=False)


def decide(name: str) -> Any:
    def reply(request: SampleRequest) -> SampleReply | str:
        used = any(isinstance(b, ToolUseBlock) for m in request.messages for b in m.content)
        if request.messages[-1].text == "Think.":
            return "thought"
        return "fine" if used else calls(("use", name, {}))

    return reply


async def result_of(name: str, **options: Any) -> str:
    """Return the result that the model reads when it calls the named tool."""
    STARTED.clear()
    model = options.pop("model", None) or MockModel(decide(name))
    agent = Agent(MemoryTrees(), model, tools=[book, think, work], **options)
    await agent.say((await agent.begin()).id, "go")
    [result] = results_in(model.requests[-1].messages[-1].content).values()
    return result


YES = ElicitReply(action="accept", content={"ok": True})


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("book", {}),
        ("book", {"user": Absent()}),
        (
            "book",
            {"user": Answering(lambda _: YES), "capabilities": Capabilities(elicitation=False)},
        ),
        ("think", {"capabilities": Capabilities(sampling=False)}),
        ("work", {"capabilities": Capabilities(sampling_tools=False)}),
    ],
)
async def test_a_tool_does_not_start_without_its_required_capabilities(
    name: str, options: dict[str, Any]
) -> None:
    assert "This tool needs" in await result_of(name, **options)
    assert STARTED == []


async def test_a_tool_starts_when_user_and_model_have_its_required_capabilities() -> None:
    assert await result_of("book", user=Answering(lambda _: YES)) == "accept"
    assert await result_of("think") == "thought"
    assert await result_of("work") == "done"


async def test_a_models_declared_capabilities_are_believed() -> None:
    assert "needs 'sampling'" in await result_of("think", model=Mute(decide("think")))
    assert STARTED == []

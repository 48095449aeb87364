"""The frameworks of the adapters: the error for a missing one, and a whole call in an installed
one.

``tests/interop/frameworks`` tests all of them, in separate environments.
"""

from base64 import b64encode
from importlib import import_module
from typing import Any

import pydantic
import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from anabranch import BranchContext, tool
from anabranch.adapters.pydantic_ai import as_tool, questions, results
from anabranch.errors import MissingExtraError, find_framework
from anabranch.messages import ImageBlock
from anabranch.rounds import Rounds


def test_a_framework_that_is_missing_is_named_with_its_floor_and_the_command() -> None:
    with pytest.raises(MissingExtraError) as missing:
        find_framework("no_such_framework", "no-such-framework", "1.2", "anabranch.adapters.x")
    said = str(missing.value)
    assert said.startswith(
        "anabranch.adapters.x needs the package 'no-such-framework' in version 1.2 or newer, which is"
        " not installed. Install it: "
    )
    assert said.endswith("'no-such-framework>=1.2'")


def test_a_framework_that_is_too_old_is_named_with_its_version() -> None:
    with pytest.raises(MissingExtraError, match=r"and \d+\.\d+.* is installed"):
        find_framework("pydantic", "pydantic", "99.0", "anabranch.adapters.x")
    assert find_framework("pydantic", "pydantic", "2.0", "anabranch.adapters.x") is pydantic


@pytest.mark.parametrize(
    "framework", ["agent_framework", "google_adk", "langchain", "openai_agents", "pydantic_ai"]
)
def test_every_adapter_refuses_other_kinds_of_tools_and_rounds(framework: str) -> None:
    adapter: Any = import_module(f"anabranch.adapters.{framework}")
    with pytest.raises(TypeError, match=r"as_tool\(\) takes a tool, .* the function 'model'"):
        adapter.as_tool(model, Rounds(keys=["k" * 32]))
    with pytest.raises(TypeError, match=r"as_tool\(\) takes Rounds\(keys=\[…\]\) second; .* list"):
        adapter.as_tool(greet, ["k" * 32])


def test_a_run_of_pydantic_ai_that_has_ended_has_no_questions() -> None:
    assert questions("It is booked.") == {}


class Guest(BaseModel):
    name: str


@tool
async def greet(ctx: BranchContext) -> str:
    """Ask the model and the user."""
    sampled = await ctx.sample("How does one greet?")
    await ctx.notify("asked the model")
    answer = await ctx.elicit(Guest, "Who?")
    return f"{sampled.text}, {answer.action}"


@tool
async def look(ctx: BranchContext) -> list[Any]:
    """Return a photo."""
    await ctx.elicit(Guest, "Whose?")
    return ["Rome", ImageBlock(data=b64encode(PNG).decode(), mime_type="image/png")]


PNG = b"\x89PNG\r\n\x1a\n"


def looking(history: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
    if len(history) > 1:
        return ModelResponse([TextPart("I see.")])
    return ModelResponse([ToolCallPart("look", {}, "call-1")])


async def test_the_model_of_pydantic_ai_sees_an_image_that_a_tool_returns() -> None:
    rounds = Rounds(keys=["a key of the tests, which is long enough"])
    output: Any = [str, DeferredToolRequests]
    agent: Any = Agent(FunctionModel(looking), tools=[as_tool(look, rounds)], output_type=output)
    paused = await agent.run("Go.")
    answers = {"call-1": {"look/elicit.1": {"action": "decline"}}}
    given = results(paused.output, answers)
    ended = await agent.run(message_history=paused.all_messages(), deferred_tool_results=given)
    [read] = [part for each in ended.all_messages() for part in each.parts if is_return(part)]
    assert read.content == ["Rome", BinaryContent(PNG, media_type="image/png")]


def is_return(part: object) -> bool:
    return isinstance(part, ToolReturnPart)


def model(history: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    if not info.function_tools:
        return ModelResponse([TextPart("Hello")])
    if len(history) > 1:
        read: Any = history[-1].parts[-1]
        return ModelResponse([TextPart(str(read.content))])
    return ModelResponse([ToolCallPart("greet", {}, "call-1")])


async def test_a_run_of_pydantic_ai_ends_with_our_question_and_continues_with_its_answer() -> None:
    rounds = Rounds(keys=["a key of the tests, which is long enough"])
    tools: list[Any] = [as_tool(greet, rounds, principal=lambda _: "ann")]
    output: Any = [str, DeferredToolRequests]
    agent: Any = Agent(FunctionModel(model), tools=tools, output_type=output)
    paused = await agent.run("Go.")
    asked = questions(paused.output)
    assert [each.message for each in asked["call-1"].questions] == ["Who?"]
    history = paused.all_messages()

    async def resume(answers: dict[str, Any]) -> Any:
        given = results(paused.output, answers)
        return await agent.run(message_history=history, deferred_tool_results=given)

    assert questions((await resume({})).output) == asked
    wrong = await resume({"call-1": {"greet/elicit.1": {"action": "accept", "content": {}}}})
    assert "name: 'name' is a required property" in wrong.output.metadata["call-1"]["problem"]
    ended = await resume({"call-1": {"greet/elicit.1": {"action": "decline"}}})
    assert ended.output == "Hello, decline"
    other = DeferredToolRequests(approvals=[ToolCallPart("other", {}, "2")])
    assert questions(other) == {}

"""Models, a request and replies that the tests of providers share."""

from typing import Any

import pytest
from pydantic_ai import messages as ai
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.profiles import ModelProfile

from anabranch import ToolSpec, assistant, user
from anabranch.messages import SampleRequest, TextBlock, ToolResultBlock, ToolUseBlock

ANTHROPIC, OPENAI, OLLAMA = "anthropic:claude-sonnet-4-6", "openai:gpt-4o", "ollama:qwen3"

everywhere = pytest.mark.parametrize("model", [ANTHROPIC, OPENAI, OLLAMA])

LOOK = ToolSpec(
    name="look",
    description="Look.",
    input_schema={"type": "object", "properties": {"at": {"type": "string"}}},
)

REQUEST = SampleRequest(
    system_prompt="Be brief.",
    messages=(
        user("Is it raining?"),
        assistant([ToolUseBlock(id="u1", name="look", input={"at": "sky"})]),
        user([ToolResultBlock(tool_use_id="u1", content=(TextBlock(text="rain"),))]),
    ),
    max_tokens=77,
    tools=(LOOK,),
    tool_choice="required",
)

LONG = "Take a coat, it is raining."

FIRST_WORDS = {ANTHROPIC: 4, OPENAI: 5, OLLAMA: 2}
"""The number of events after which each interface has sent the first four letters."""


def replying(
    response: ai.ModelResponse, name: str = "fake", profile: ModelProfile | None = None
) -> tuple[FunctionModel, list[Any]]:
    """Return a model that gives `response`, and the list of its requests."""
    asked: list[Any] = []

    def answer(messages: list[ai.ModelMessage], info: AgentInfo) -> ai.ModelResponse:
        asked.append((messages, info))
        return response

    return FunctionModel(answer, model_name=name, profile=profile), asked

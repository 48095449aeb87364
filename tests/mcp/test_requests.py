"""The exact requests that a client receives, which are the same in both eras.

Source: MCP 2025-11-25 and 2026-07-28, ``sampling/createMessage`` and ``elicitation/create``.
"""

from enum import Enum
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from anabranch import BranchContext, Message, ToolSpec, tool, user
from anabranch.messages import ImageBlock, TextBlock, ToolResultBlock, ToolUseBlock, assistant
from tests.mcp.harness import ERAS, HANDSHAKE, Answers, accept, call_once, connected, say, serving

LOOK = ToolSpec(
    name="look", description="Look it up.", input_schema={"type": "object", "properties": {}}
)
SEEN: tuple[Message, ...] = (
    user([TextBlock(text="What is it?"), ImageBlock(data="aGk=", mime_type="image/png")]),
    assistant([ToolUseBlock(id="u1", name="look", input={"at": "it"})]),
    user([ToolResultBlock(tool_use_id="u1", content=(TextBlock(text="a cat"),))]),
)


@tool
async def everything(ctx: BranchContext) -> str:
    """Sample with every option."""
    reply = await ctx.sample(
        messages=SEEN,
        system_prompt="Be brief.",
        max_tokens=77,
        tools=[LOOK],
        tool_choice="auto",
        model_preferences={"hints": [{"name": "small"}], "speedPriority": 0.5},
        temperature=0.5,
        stop_sequences=["END"],
        include_context="thisServer",
        metadata={"user": "u1"},
    )
    return reply.text


@pytest.mark.parametrize("era", ERAS)
async def test_a_sample_with_every_option_reaches_the_client(era: str) -> None:
    answers = Answers(sample=lambda _: say("A cat."))
    async with connected(serving(everything), era, answers) as client:
        await client.call_tool("everything")
    (asked,) = answers.prompted
    sent = asked.model_dump(by_alias=True, exclude_none=True, mode="json", exclude={"meta"})
    assert sent == {
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What is it?"},
                    {"type": "image", "data": "aGk=", "mimeType": "image/png"},
                ],
            },
            {
                "role": "assistant",
                "content": {"type": "tool_use", "id": "u1", "name": "look", "input": {"at": "it"}},
            },
            {
                "role": "user",
                "content": {
                    "type": "tool_result",
                    "toolUseId": "u1",
                    "content": [{"type": "text", "text": "a cat"}],
                    "isError": False,
                },
            },
        ],
        "systemPrompt": "Be brief.",
        "maxTokens": 77,
        "tools": [
            {
                "name": "look",
                "description": "Look it up.",
                "inputSchema": {"type": "object", "properties": {}},
            }
        ],
        "toolChoice": {"mode": "auto"},
        "modelPreferences": {"hints": [{"name": "small"}], "speedPriority": 0.5},
        "temperature": 0.5,
        "stopSequences": ["END"],
        "metadata": {"user": "u1"},
    }  # no includeContext: the client has not declared that it can include context


class Verdict(BaseModel):
    good: bool


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Form(BaseModel):
    name: str = Field(min_length=1, description="Who you are.")
    age: int = Field(default=30, ge=0)
    height: float | None = None
    member: bool = False
    colour: Colour = Colour.RED
    size: Literal["S", "M"] = "M"
    likes: list[Literal["tea", "milk"]] = Field(default_factory=list[Literal["tea", "milk"]])


@tool
async def fill(ctx: BranchContext) -> dict[str, Any]:
    """Ask for every kind of form field."""
    answer = await ctx.elicit(Form, "Please fill in.")
    return answer.content.model_dump(mode="json") if answer.action == "accept" else {}


@pytest.mark.parametrize("era", ERAS)
async def test_every_kind_of_field_crosses_and_comes_back(era: str) -> None:
    given: dict[str, Any] = {
        "name": "Jo",
        "age": 7,
        "height": 1.5,
        "member": True,
        "colour": "blue",
        "size": "S",
        "likes": ["tea", "milk"],
    }
    answers = Answers(lambda _: accept(**given))
    async with connected(serving(fill), era, answers) as client:
        result = await client.call_tool("fill")
    assert result.structured_content == given
    (asked,) = answers.asked
    assert asked.requested_schema["required"] == ["name"]
    properties = asked.requested_schema["properties"]
    assert {name: schema["type"] for name, schema in properties.items()} == {
        "name": "string",
        "age": "integer",
        "height": "number",
        "member": "boolean",
        "colour": "string",
        "size": "string",
        "likes": "array",
    }
    assert properties["colour"]["enum"] == ["red", "blue"]
    assert properties["likes"]["items"]["enum"] == ["tea", "milk"]


@pytest.mark.parametrize("era", ERAS)
async def test_context_for_the_client_is_not_part_of_the_printed_message(era: str) -> None:
    """Real clients show the whole message to the user."""

    @tool
    async def draw(ctx: BranchContext) -> str:
        return (await ctx.elicit(Verdict, "This one?", context={"cards": [1, 2]})).action

    answers = Answers(lambda _: accept(good=True))
    async with connected(serving(draw), era, answers) as client:
        await client.call_tool("draw")
    (asked,) = answers.asked
    if era == HANDSHAKE:
        assert asked.meta["anabranch/context"] == {"cards": [1, 2]}
    else:
        # Modern requests have no _meta: the _meta of the reply has the context, by the requests'
        # keys.
        async with connected(serving(draw), era, answers) as client:
            reply = await call_once(client, "draw")
        assert reply["_meta"]["anabranch/context"] == {"draw/elicit.1": {"cards": [1, 2]}}
    assert asked.message == "This one?"
    assert asked.requested_schema.keys() == {"type", "properties", "required"}

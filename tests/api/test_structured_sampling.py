"""Samples with a schema: parsed, retried with the reason, and returned as an exchange of three
messages.
"""

import json
from collections.abc import Iterable
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from anabranch import BranchContext, Capabilities, SampleResult, SampleValidationError, tool, user
from anabranch.messages import SampleReply, TextBlock, ToolResultBlock, ToolUseBlock
from anabranch.testing import MockClient, run_tool
from anabranch.tool import Tool


class Verdict(BaseModel):
    score: int = Field(ge=0, le=10)
    reason: str


GOOD = '{"score": 7, "reason": "solid"}'


@tool
async def judge(ctx: BranchContext) -> Verdict:
    return (await ctx.sample("Judge it.", schema=Verdict)).parsed


def through_the_tool(**arguments: Any) -> SampleReply:
    use = ToolUseBlock(id="u1", name="__schema__", input={**arguments})
    return SampleReply(content=(use,), stop_reason="toolUse")


@pytest.mark.parametrize(
    "said",
    [
        GOOD,
        f"  {GOOD}\n",
        f"```\n{GOOD}\n```\n",
        f"Certainly! Here is my verdict:\n\n{GOOD}\n\nAnything else?",
        f"Sure:\n```json\n{GOOD}\n```",
        f'<think>{{"score": 1, "reason": "?"}}</think>{GOOD}',
        through_the_tool().model_copy(
            update={
                "content": (
                    ToolUseBlock(id="u1", name="__schema__", input={}, malformed=f"{GOOD}{GOOD}"),
                )
            }
        ),
    ],
    ids=["plain", "spaced", "fenced", "polite", "polite and fenced", "thinking", "twice"],
)
async def test_the_one_answer_in_a_reply_is_read_without_a_retry(
    said: str | SampleReply, replay: bool
) -> None:
    """Models often fence JSON or add words around it, and a retry costs tokens."""
    verdict = await run_tool(judge, {}, MockClient(samples=[said]), replay=replay)
    assert verdict == Verdict(score=7, reason="solid")


async def test_different_answers_in_a_reply_are_asked_for_again() -> None:
    client = MockClient(samples=[GOOD + GOOD.replace("7", "8"), GOOD])
    assert (await run_tool(judge, {}, client)).score == 7
    assert "several answers" in client.sample_calls[1].messages[-1].text


async def test_the_schema_is_offered_as_a_tool_that_must_be_called(replay: bool) -> None:
    client = MockClient(samples=[through_the_tool(score=3, reason="thin")])
    verdict = await run_tool(judge, {}, client, replay=replay)
    assert verdict == Verdict(score=3, reason="thin")
    (request,) = client.sample_calls
    assert request.tools is not None
    assert request.tools[0].name == "__schema__"
    assert request.tools[0].input_schema == Verdict.model_json_schema()
    assert request.tool_choice == "required"


async def test_a_client_without_tools_is_sent_the_schema_in_the_prompt(replay: bool) -> None:
    """A schema must need no more than plain sampling."""
    client = MockClient(samples=[GOOD], capabilities=Capabilities(sampling_tools=False))

    @tool
    async def kind_judge(ctx: BranchContext) -> int:
        result = await ctx.sample("Judge it.", schema=Verdict, system_prompt="Be kind.")
        return result.parsed.score

    assert await run_tool(kind_judge, {}, client, replay=replay) == 7
    (request,) = client.sample_calls
    assert (request.tools, request.tool_choice) == (None, None)
    assert request.system_prompt is not None
    assert request.system_prompt.startswith("Be kind.\n\nReply with JSON only")
    assert json.dumps(Verdict.model_json_schema()) in request.system_prompt


async def test_an_unfitting_reply_is_retried_twice_with_the_reason_fed_back(replay: bool) -> None:
    client = MockClient(samples=["not json", '{"score": 99, "reason": "x"}', GOOD])
    assert (await run_tool(judge, {}, client, replay=replay)).score == 7
    second, third = (request.messages for request in client.sample_calls[1:])
    assert [message.text for message in second[:2]] == ["Judge it.", "not json"]
    assert "Invalid JSON" in second[2].text
    assert third[:3] == second
    assert "score: Input should be less than or equal to 10" in third[4].text


async def test_only_the_prompt_and_the_fitting_reply_are_in_the_conversation(replay: bool) -> None:
    @tool
    async def twice(ctx: BranchContext) -> list[str]:
        await ctx.sample("Judge it.", schema=Verdict)
        return [message.text for message in ctx.messages]

    client = MockClient(samples=["not json", GOOD])
    assert await run_tool(twice, {}, client, replay=replay) == ["Judge it.", GOOD]


async def test_after_three_unfitting_replies_the_sample_fails(replay: bool) -> None:
    client = MockClient(samples=["a", "b", "c", GOOD])
    with pytest.raises(SampleValidationError) as raised:
        await run_tool(judge, {}, client, replay=replay)
    error = raised.value
    assert (error.step_id, error.attempts, error.last_text) == ("judge/sample.1", 3, "c")
    assert "did not fit after 3 attempts" in str(error)
    assert len(client.sample_calls) == 3


async def test_an_exchange_with_a_schema_has_three_messages_and_no_arguments(replay: bool) -> None:
    @tool
    async def ask(ctx: BranchContext) -> bool:
        result = await ctx.sample("Judge it.", schema=Verdict)
        prompt, use, answer = result.exchange
        assert prompt == user("Judge it.")
        (called,), (returned,) = use.content, answer.content
        assert isinstance(called, ToolUseBlock)
        assert isinstance(returned, ToolResultBlock)
        assert (called.name, called.input) == ("__schema__", {})
        assert called.id == returned.tool_use_id
        assert returned.content == (TextBlock(text=result.parsed.model_dump_json()),)
        assert result.tool_calls == ()
        return True

    assert await run_tool(ask, {}, MockClient(samples=[GOOD]), replay=replay)


class Card(BaseModel):
    card_number: int = Field(alias="cardNumber")


async def test_a_schema_speaks_of_the_names_that_fields_have_on_the_wire(replay: bool) -> None:
    """Schema, reply and exchange use the same names."""

    @tool
    async def ask(ctx: BranchContext) -> SampleResult[Card]:
        return await ctx.sample("Which?", schema=Card)

    client = MockClient(samples=[Card(cardNumber=3)])
    result = await run_tool(ask, {}, client, replay=replay)
    assert result.parsed.card_number == 3
    assert '{"cardNumber":3}' in str(result.exchange[2].content)


class Good(BaseModel):
    good: str


class Tree(BaseModel):
    name: str
    below: list["Tree"] = []


def asking(schema: Any) -> Tool[Any]:
    @tool
    async def ask(ctx: BranchContext) -> Any:
        result = await ctx.sample("Which?", schema=schema)
        assert ctx.messages[-1].text == result.text
        return [result.parsed, result.exchange[-1].content[0].content[0].text]  # type: ignore[union-attr]

    return ask


LEAF = {"name": "a", "below": []}
SHAPES: list[tuple[Any, Any, Any]] = [
    (list[str], ["a", "b"], ["a", "b"]),
    (Iterable[str], ["a", "b"], ["a", "b"]),
    (int, 7, 7),
    (str, "a", "a"),
    (Literal["a", "b"], "b", "b"),
    (list[Good], [{"good": "a"}], [Good(good="a")]),
    (Good | Verdict, {"good": "a"}, Good(good="a")),
    (int | None, None, None),
    (Tree, LEAF, Tree(name="a")),  # the schema's root is a reference
    (Annotated[list[int], Field(max_length=2)], [1], [1]),
    (Annotated[int, Field(json_schema_extra={"examples": [1]})], 1, 1),
]


@pytest.mark.parametrize(("schema", "given", "parsed"), SHAPES, ids=repr)
@pytest.mark.parametrize("tools", [True, False])
async def test_a_form_that_is_no_object_is_wrapped_for_a_tool_and_unwrapped(
    schema: Any, given: Any, parsed: Any, tools: bool, replay: bool
) -> None:
    """Providers refuse a tool whose arguments are not an object."""
    reply = through_the_tool(answer=given) if tools else f"Here:\n```json\n{json.dumps(given)}\n```"
    client = MockClient(samples=[reply], capabilities=Capabilities(sampling_tools=tools))
    assert await run_tool(asking(schema), {}, client, replay=replay) == [
        parsed,
        json.dumps(given, separators=(",", ":")),
    ]
    (request,) = client.sample_calls
    for offered in request.tools or ():
        assert offered.input_schema["type"] == "object"
        assert offered.input_schema["required"] == ["answer"]


@pytest.mark.parametrize(
    "reply",
    [
        through_the_tool(items=["a"]),
        through_the_tool(answer='["a"]'),
        'I need no tool: ["a"]',
        '{"answer": ["a"]}',
    ],
    ids=["named otherwise", "as a text", "said", "said as for the tool"],
)
async def test_a_list_is_read_as_a_model_may_give_it(reply: Any) -> None:
    assert (await run_tool(asking(list[str]), {}, MockClient(samples=[reply])))[0] == ["a"]


async def test_a_list_that_does_not_fit_is_asked_for_again() -> None:
    client = MockClient(samples=[through_the_tool(answer=[1]), through_the_tool(answer=["a"])])
    assert (await run_tool(asking(list[str]), {}, client))[0] == ["a"]
    assert "0: Input should be a valid string" in client.sample_calls[1].messages[-1].text


@pytest.mark.parametrize(
    "schema", [{"type": "object"}, len, object()], ids=["mapping", "function", "object"]
)
async def test_a_schema_that_is_no_type_is_refused_before_the_model_is_asked(schema: Any) -> None:
    client = MockClient(samples=[GOOD])
    with pytest.raises(TypeError, match=r"sample\(schema=…\) takes a model"):
        await run_tool(asking(schema), {}, client)
    assert client.sample_calls == []

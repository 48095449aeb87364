"""Sampling the model: the request, the reply, and requests that are refused before they are sent."""

from collections.abc import Iterable
from typing import Any

import pytest

from anabranch import AnswerError, BranchContext, Capabilities, Message, ToolSpec, Usage, tool, user
from anabranch.errors import CapabilityError, NonDeterminismError, StepFailed
from anabranch.messages import (
    AudioBlock,
    Block,
    DocumentBlock,
    ImageBlock,
    SampleReply,
    SampleRequest,
    TextBlock,
    ToolCall,
    ToolResultBlock,
    ToolUseBlock,
)
from anabranch.testing import MockClient, run_tool

WEATHER = ToolSpec(
    name="weather",
    description="The weather of a city.",
    input_schema={"type": "object", "properties": {"city": {"type": "string"}}},
)


def wish(city: str) -> SampleReply:
    """Return a reply in which the model calls the weather tool."""
    use = ToolUseBlock(id="u1", name="weather", input={"city": city})
    return SampleReply(content=(use,), model="m1", stop_reason="toolUse")


@tool
async def plain(ctx: BranchContext) -> str:
    return (await ctx.sample("hello")).text


async def test_a_request_carries_the_parameters_of_the_model(replay: bool) -> None:
    @tool
    async def ask(ctx: BranchContext) -> str:
        result = await ctx.sample(
            "hello",
            temperature=0.5,
            stop_sequences=["END"],
            include_context="thisServer",
            metadata={"user": "u1", "trace": None},
        )
        return result.text

    client = MockClient(samples=["hi"])
    assert await run_tool(ask, {}, client, replay=replay) == "hi"
    (request,) = client.sample_calls
    assert (request.temperature, request.stop_sequences) == (0.5, ("END",))
    assert (request.include_context, request.metadata) == (
        "thisServer",
        {"user": "u1", "trace": None},
    )


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"stop_sequences": "END"}, "stop_sequences"),
        ({"stop_sequences": [""]}, "stop_sequences"),
        ({"include_context": "everything"}, "include_context"),
        ({"metadata": {"when": Ellipsis}}, "metadata"),
        ({"model_preferences": {"hints": Ellipsis}}, "model_preferences"),
    ],
    ids=str,
)
async def test_a_parameter_that_cannot_be_sent_is_refused_where_it_is_given(
    options: dict[str, Any], named: str, replay: bool
) -> None:
    @tool
    async def ask(ctx: BranchContext) -> None:
        asked = ctx.sample("hello", **options)
        await asked

    client = MockClient(samples=["hi"])
    with pytest.raises(
        ValueError, match=rf"sample\(\) got an invalid argument: {named}"
    ) as refused:
        await run_tool(ask, {}, client, replay=replay)
    assert "\n" not in str(refused.value)
    assert client.sample_calls == []


async def test_context_is_asked_for_only_of_a_client_that_can_include_it(replay: bool) -> None:
    """MCP: a server should not ask for context without ``sampling.context``, and a client may
    ignore it.
    """

    @tool
    async def ask(ctx: BranchContext) -> str:
        return (await ctx.sample("hello", include_context="allServers")).text

    client = MockClient(samples=["hi"], capabilities=Capabilities())
    assert await run_tool(ask, {}, client, replay=replay) == "hi"
    assert client.sample_calls[0].include_context is None


async def test_a_tool_can_require_a_client_that_includes_context(replay: bool) -> None:
    @tool(requires=["sampling.context"])
    async def ask(ctx: BranchContext) -> str:
        return (await ctx.sample("hello", include_context="allServers")).text

    with pytest.raises(CapabilityError, match=r"sampling\.context") as refused:
        await run_tool(ask, {}, MockClient(capabilities=Capabilities()), replay=replay)
    assert "sampler" not in str(refused.value)
    client = MockClient(samples=["hi"], capabilities={"sampling"})
    assert await run_tool(ask, {}, client, replay=replay) == "hi"


@pytest.mark.parametrize(
    "first",
    [
        {"temperature": 0.1},
        {"stop_sequences": ["."]},
        {"include_context": "thisServer"},
        {"metadata": {"a": 1}},
    ],
    ids=str,
)
async def test_a_parameter_that_differs_between_runs_is_noticed(first: dict[str, Any]) -> None:
    runs = [first, {}]

    @tool
    async def ask(ctx: BranchContext) -> None:
        await ctx.sample("pick", **runs.pop(0))

    with pytest.raises(NonDeterminismError, match=r"ask/sample\.1"):
        await run_tool(ask, {}, MockClient(samples=["x"], capabilities=Capabilities()))


async def test_a_result_names_the_model_the_stop_reason_and_the_usage(replay: bool) -> None:
    reply = {
        "content": {"type": "text", "text": "hi"},
        "model": "m1",
        "stopReason": "maxTokens",
        "usage": {"inputTokens": 3, "outputTokens": 4},
    }

    @tool
    async def ask(ctx: BranchContext) -> bool:
        result = await ctx.sample("hello")
        assert (result.text, result.model, result.stop_reason) == ("hi", "m1", "maxTokens")
        assert result.usage == Usage(input_tokens=3, output_tokens=4)
        assert (result.parsed, result.tool_calls) == (None, ())
        assert [message.role for message in result.exchange] == ["user", "assistant"]
        return True

    assert await run_tool(ask, {}, MockClient(samples=lambda _: reply), replay=replay)


async def test_tool_calls_of_the_model_reach_the_author(replay: bool) -> None:
    @tool
    async def ask(ctx: BranchContext) -> str:
        result = await ctx.sample("weather?", tools=[WEATHER], tool_choice="required")
        assert result.stop_reason == "toolUse"
        assert result.tool_calls == (ToolCall(id="u1", name="weather", arguments={"city": "Rome"}),)
        return str(result.tool_calls[0].arguments["city"])

    assert await run_tool(ask, {}, MockClient(samples=[wish("Rome")]), replay=replay) == "Rome"


async def test_a_tool_result_is_sent_back_in_the_next_turn(replay: bool) -> None:
    @tool
    async def ask(ctx: BranchContext) -> str:
        first = await ctx.sample(messages=[user("weather?")], tools=[WEATHER])
        (wanted,) = first.tool_calls
        result = ToolResultBlock.model_validate({"tool_use_id": wanted.id, "content": "sunny"})
        turns: list[Message] = [*first.exchange, user([result])]
        return (await ctx.sample(messages=turns, tools=[WEATHER])).text

    client = MockClient(samples=[wish("Rome"), "It is sunny."])
    assert await run_tool(ask, {}, client, replay=replay) == "It is sunny."
    kinds = [
        [block.type for block in message.content] for message in client.sample_calls[1].messages
    ]
    assert kinds == [["text"], ["tool_use"], ["tool_result"]]


async def test_a_tool_call_without_an_object_as_arguments_is_asked_for_again(replay: bool) -> None:
    """An author must never run a tool with arguments that the model has not given."""

    @tool
    async def ask(ctx: BranchContext) -> str:
        (wanted,) = (await ctx.sample("weather?", tools=[WEATHER])).tool_calls
        return str(wanted.arguments["city"])

    two = '{"city": "Rome"}{"city": "Oslo"}'
    broken = ToolUseBlock(id="u1", name="weather", input={}, malformed=two)
    client = MockClient(samples=[SampleReply(content=(broken,)), wish("Rome")])
    assert await run_tool(ask, {}, client, replay=replay) == "Rome"
    assert "must be one JSON object" in client.sample_calls[1].messages[-1].text
    assert two in client.sample_calls[1].messages[-2].text


async def test_a_tool_use_is_returned_and_not_added_to_the_conversation(replay: bool) -> None:
    """The tool's result would be missing, and a provider refuses a tool use without a result."""

    @tool
    async def ask(ctx: BranchContext) -> list[str]:
        await ctx.sample("weather?", tools=[WEATHER])
        await ctx.sample("and now?")
        return [message.text for message in ctx.messages]

    client = MockClient(samples=[wish("Rome"), "done"])
    said = await run_tool(ask, {}, client, replay=replay)
    assert said == ["weather?", "(called weather)", "and now?", "done"]


async def test_a_required_tool_call_is_insisted_on_twice(replay: bool) -> None:
    @tool
    async def ask(ctx: BranchContext) -> int:
        result = await ctx.sample("weather?", tools=[WEATHER], tool_choice="required")
        assert len(ctx.messages) == 2
        return len(result.tool_calls)

    client = MockClient(samples=["sunny, I guess", "no", wish("Rome")])
    assert await run_tool(ask, {}, client, replay=replay) == 1
    last = client.sample_calls[2].messages
    assert [message.text for message in last[:2]] == ["weather?", "sunny, I guess"]
    assert "no tool was called" in last[2].text


async def test_an_anabranch_tool_can_be_offered_to_the_model() -> None:
    @tool
    async def ask(ctx: BranchContext) -> str:
        return (await ctx.sample("hello", tools=[plain])).text

    client = MockClient(samples=["hi"])
    await run_tool(ask, {}, client)
    assert client.sample_calls[0].tools is not None
    (offered,) = client.sample_calls[0].tools
    assert (offered.name, offered.input_schema) == ("plain", plain.input_schema)


async def test_a_contradictory_sample_is_refused_where_it_is_made() -> None:
    @tool
    async def ask(ctx: BranchContext) -> bool:
        with pytest.raises(ValueError, match="either a prompt or messages="):
            _ = ctx.sample()
        with pytest.raises(ValueError, match="either a prompt or messages="):
            _ = ctx.sample("a", messages=[user("b")])
        with pytest.raises(ValueError, match="at least one message"):
            _ = ctx.sample(messages=[])
        with pytest.raises(ValueError, match="max_tokens must be positive"):
            _ = ctx.sample("a", max_tokens=0)
        with pytest.raises(ValueError, match="not both"):
            _ = ctx.sample("x", schema=int, tools=[plain])  # type: ignore[call-overload]  # the point
        with pytest.raises(ValueError, match="needs tools="):
            _ = ctx.sample("a", tool_choice="required")
        return True

    client = MockClient()
    assert await run_tool(ask, {}, client)
    assert client.sample_calls == []


async def test_an_error_of_the_client_reaches_the_sample_that_it_belongs_to(replay: bool) -> None:
    @tool
    async def ask(ctx: BranchContext) -> list[str]:
        async def safe(prompt: str) -> str:
            try:
                return (await ctx.sample(prompt)).text
            except StepFailed as failed:
                return f"{failed.error}: {failed.detail}"

        return list(await ctx.gather(safe("good"), safe("bad"), safe("good too")))

    def answer(request: SampleRequest) -> str:
        if request.messages[-1].text == "bad":
            raise AnswerError("rate limited", 429)
        return "fine"

    client = MockClient(samples=answer)
    assert await run_tool(ask, {}, client, replay=replay) == ["fine", "429: rate limited", "fine"]


class Provider:
    def __init__(self, replies: Iterable[str | Exception]) -> None:
        self.replies = list(replies)
        self.asked: list[SampleRequest] = []

    async def sample(self, request: SampleRequest) -> SampleReply:
        self.asked.append(request)
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return SampleReply.model_validate({"content": reply, "model": "own"})


async def test_a_servers_own_sampler_answers_instead_of_the_client(replay: bool) -> None:
    own = Provider(["from the server"])
    client = MockClient(capabilities=set())
    result = await run_tool(plain, {}, client, sampler=own, replay=replay)
    assert result == "from the server"
    assert client.sample_calls == []
    assert len(own.asked) == 1


async def test_a_failing_sampler_fails_the_step_and_its_text_stays_private(replay: bool) -> None:
    own = Provider([RuntimeError("api key sk-123 rejected")])
    with pytest.raises(StepFailed) as raised:
        await run_tool(plain, {}, MockClient(), sampler=own, replay=replay)
    assert raised.value.error == "RuntimeError"
    assert "sk-123" not in str(raised.value)
    assert "sk-123" in raised.value.detail


async def test_a_sampler_may_refuse_with_an_error_of_the_library(replay: bool) -> None:
    own = Provider([CapabilityError("sampling.tools")])
    with pytest.raises(CapabilityError, match=r"sampling\.tools"):
        await run_tool(plain, {}, MockClient(), sampler=own, replay=replay)


async def test_a_value_that_is_no_reply_fails_the_step(replay: bool) -> None:
    """A client that answers a sample with another kind of value fails the sample."""

    class Odd(MockClient):
        async def sample(self, request: SampleRequest, /, *, step_id: str = "") -> SampleReply:
            return SampleReply.model_construct(content=17)

    with pytest.warns(UserWarning, match="serializ"), pytest.raises(StepFailed) as raised:
        await run_tool(plain, {}, Odd(), replay=replay)
    assert raised.value.error == "InvalidReply"


PDF = DocumentBlock(data="JVBERi0=", mime_type="application/pdf")
MEDIA: tuple[Block, ...] = (
    ImageBlock(data="iVBORw0KGgo=", mime_type="image/png"),
    AudioBlock(data="SUQz", mime_type="audio/mpeg"),
    TextBlock(text="What is this?"),
)


async def test_a_prompt_may_have_images_sounds_and_documents(replay: bool) -> None:
    @tool
    async def look(ctx: BranchContext) -> int:
        await ctx.sample([PDF, *MEDIA])
        return len(ctx.messages)

    client = MockClient(samples=["A hill."])
    assert await run_tool(look, {}, client, replay=replay) == 2
    [request] = client.sample_calls
    assert request.messages[-1].content == (PDF, *MEDIA)


async def test_a_document_is_refused_before_any_request_to_a_client_of_mcp(replay: bool) -> None:
    """MCP carries images and sounds to the client's model, and no documents."""

    @tool
    async def read(ctx: BranchContext) -> str:
        seen = await ctx.sample(MEDIA)
        return seen.text + (await ctx.sample([PDF])).text

    client = MockClient(samples=["A hill."], capabilities=Capabilities(sampling_documents=False))
    with pytest.raises(CapabilityError, match="MCP cannot carry documents to the client's model"):
        await run_tool(read, {}, client, replay=replay)
    assert len(client.sample_calls) == 1

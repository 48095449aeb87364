"""``ctx.converse``: the model calls tools until it answers."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import BaseModel

from anabranch import BranchContext, SampleResult, tool, user
from anabranch.errors import CapabilityError, ConverseRoundsError, ToolError
from anabranch.messages import Message, SampleReply, ToolResultBlock, ToolUseBlock
from anabranch.testing import MockClient, run_tool
from anabranch.tool import Tool


class Ok(BaseModel):
    ok: bool


class Weather(BaseModel):
    city: str
    degrees: int


@tool
async def weather(ctx: BranchContext, city: str) -> Weather:
    return Weather(city=city, degrees=len(city))


@tool
async def book(ctx: BranchContext, what: str) -> str:
    """Book something, if the user agrees."""
    answer = await ctx.elicit(Ok, f"Book {what}?")
    return f"{what}: {answer.action}"


@tool
async def refuse(ctx: BranchContext) -> str:
    raise ToolError("Not today.")


def calls(*uses: tuple[str, Mapping[str, Any]], stop: str = "toolUse") -> SampleReply:
    """Return a reply that calls tools; all such replies use the same ids."""
    content = [
        ToolUseBlock(id=f"u{number}", name=name, input=dict(given))
        for number, (name, given) in enumerate(uses, 1)
    ]
    return SampleReply(content=tuple(content), model="m", stop_reason=stop)


def conversing(*tools: Tool[Any], max_rounds: int = 10, **options: Any) -> Tool[Any]:
    """Return a tool that runs ``ctx.converse`` and returns its conversation afterwards."""

    @tool
    async def ask(ctx: BranchContext) -> list[dict[str, Any]]:
        reply = await ctx.converse("Go.", tools=tools, max_rounds=max_rounds, **options)
        assert tuple(reply.exchange) == ctx.messages
        return [message.model_dump(mode="json") for message in ctx.messages]

    return ask


def results(messages: tuple[Message, ...]) -> list[ToolResultBlock]:
    return [
        block
        for message in messages
        for block in message.content
        if isinstance(block, ToolResultBlock)
    ]


def texts(messages: tuple[Message, ...]) -> list[str]:
    return ["".join(getattr(each, "text", "") for each in r.content) for r in results(messages)]


async def test_tools_are_called_until_the_model_answers(replay: bool) -> None:
    replies: list[Any] = [
        calls(("weather", {"city": "Rome"}), ("book", {"what": "a table"})),
        calls(("weather", {"city": "Oslo"})),
        "Done.",
    ]
    client = MockClient(samples=replies, elicits=[Ok(ok=True)])
    said = await run_tool(conversing(weather, book), {}, client, replay=replay)
    assert [message["role"] for message in said] == ["user", "assistant"] * 3
    assert said[-1]["content"] == [{"type": "text", "text": "Done."}]
    last = client.sample_calls[-1]
    assert [spec.name for spec in last.tools or ()] == ["weather", "book"]
    answers = texts(last.messages)
    assert [json.loads(answers[0]), answers[1], json.loads(answers[2])] == [
        {"city": "Rome", "degrees": 4},
        "a table: accept",
        {"city": "Oslo", "degrees": 4},
    ]


async def test_every_tool_use_has_a_unique_id_and_one_result_in_the_next_message() -> None:
    """Every provider requires one result for each tool use and unique ids; this model repeats its
    ids.
    """
    twice = calls(("weather", {"city": "Rome"}), ("weather", {"city": "Oslo"}))
    client = MockClient(samples=[twice, twice, twice, "Done."])
    await run_tool(conversing(weather), {}, client)
    sent = client.sample_calls[-1].messages
    seen: list[str] = []
    for asked, answered in zip(sent[1::2], sent[2::2], strict=True):
        ids = [block.id for block in asked.content if isinstance(block, ToolUseBlock)]
        assert [block.tool_use_id for block in results((answered,))] == ids
        seen += ids
    assert len(seen) == len(set(seen)) == 6


async def test_a_conversation_without_tools_is_one_sample(replay: bool) -> None:
    client = MockClient(samples=["Hello."])
    await run_tool(conversing(), {}, client, replay=replay)
    assert client.sample_calls[0].tools is None


async def test_the_tools_are_by_default_those_of_the_branch(replay: bool) -> None:
    async def inside(ctx: BranchContext) -> str:
        return (await ctx.converse("Go.")).text

    @tool
    async def ask(ctx: BranchContext) -> str:
        return await ctx.branch(inside, tools=[weather])

    client = MockClient(samples=[calls(("weather", {"city": "Rome"})), "Warm."])
    assert await run_tool(ask, {}, client, replay=replay) == "Warm."


NOTHING: dict[str, str] = {}


@pytest.mark.parametrize(
    ("use", "fed_back"),
    [
        (("fly", NOTHING), "No tool 'fly' is bound"),
        (("weather", {"town": "Rome"}), "Invalid arguments for tool 'weather'"),
        (("refuse", NOTHING), "Not today."),
    ],
)
async def test_a_call_that_fails_is_fed_back_to_the_model(
    use: tuple[str, dict[str, str]], fed_back: str, replay: bool
) -> None:
    client = MockClient(samples=[calls(use), "Sorry."])
    await run_tool(conversing(weather, refuse), {}, client, replay=replay)
    (result,) = results(client.sample_calls[1].messages)
    assert result.is_error
    assert fed_back in texts(client.sample_calls[1].messages)[0]


async def test_a_truncated_tool_call_is_not_run(replay: bool) -> None:
    """A token limit cut the reply: arguments may be incomplete even if they match the schema."""
    cut = calls(("weather", {"city": "Rome"}), ("weather", {"city": "Os"}), stop="maxTokens")
    client = MockClient(samples=[cut, "Sorry."])
    await run_tool(conversing(weather), {}, client, replay=replay)
    first, second = results(client.sample_calls[1].messages)
    assert (first.is_error, second.is_error) == (False, True)
    assert "cut" in texts(client.sample_calls[1].messages)[1]


async def test_a_bug_of_a_tool_ends_the_call(replay: bool) -> None:
    @tool
    async def broken(ctx: BranchContext) -> str:
        raise KeyError("a bug")

    client = MockClient(samples=[calls(("broken", {})), "Sorry."])
    with pytest.raises(KeyError):
        await run_tool(conversing(broken), {}, client, replay=replay)
    assert len(client.sample_calls) == 1


async def test_converse_fails_when_the_model_calls_tools_too_often(replay: bool) -> None:
    client = MockClient(samples=lambda _: calls(("weather", {"city": "Rome"})))

    @tool
    async def ask(ctx: BranchContext) -> int:
        with pytest.raises(ConverseRoundsError, match="2 requests") as stopped:
            await ctx.converse("Go.", tools=[weather], max_rounds=2)
        assert stopped.value.max_rounds == 2
        return len(ctx.messages)  # the conversation is as after a failed prompt

    assert await run_tool(ask, {}, client, replay=replay) == 0
    assert len(client.sample_calls) == 2


async def test_the_options_of_a_sample_go_with_each_request(replay: bool) -> None:
    client = MockClient(samples=[calls(("weather", {"city": "Rome"})), "Warm."])
    options: dict[str, Any] = {
        "system_prompt": "Be brief.",
        "temperature": 0.5,
        "stop_sequences": ["."],
    }
    await run_tool(conversing(weather, **options), {}, client, replay=replay)
    assert [
        (request.system_prompt, request.temperature, request.stop_sequences)
        for request in client.sample_calls
    ] == [("Be brief.", 0.5, (".",))] * 2


async def test_a_tool_sees_the_conversation_that_it_is_called_from(replay: bool) -> None:
    @tool
    async def look(ctx: BranchContext) -> list[str]:
        return [message.text for message in ctx.parent_messages]

    @tool
    async def ask(ctx: BranchContext) -> str:
        ctx.append("Hello.")
        return (await ctx.converse("Go.", tools=[look])).text

    said = calls(("look", {}))
    client = MockClient(samples=[said, said, "Done."])
    assert await run_tool(ask, {}, client, replay=replay) == "Done."
    first, second = map(json.loads, texts(client.sample_calls[2].messages))
    assert first == ["Hello.", "Go."]
    assert second[:2] == first
    assert len(second) == 4  # and the first call with its result


async def test_simultaneous_conversations_have_separate_messages(replay: bool) -> None:
    @tool
    async def ask(ctx: BranchContext) -> list[str]:
        left, right = await ctx.gather(
            ctx.converse("left", tools=[weather]), ctx.converse("right", tools=[weather])
        )
        assert [message.text for message in ctx.messages][::4] == ["left", "right"]
        return [left.text, right.text]

    def reply(request: Any) -> Any:
        first = request.messages[0].text
        if len(request.messages) == 1:
            return calls(("weather", {"city": first}))
        return f"{first} {texts(request.messages)}"

    left, right = await run_tool(ask, {}, MockClient(samples=reply), replay=replay)
    assert left.startswith("left")
    assert '"right"' not in left
    assert right.startswith("right")


async def test_a_client_without_tools_in_sampling_is_not_asked(replay: bool) -> None:
    client = MockClient(capabilities={"sampling.context"})
    with pytest.raises(CapabilityError):
        await run_tool(conversing(weather), {}, client, replay=replay)
    assert client.sample_calls == []


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"max_rounds": 0}, "max_rounds"),
        ({"tools": [weather, weather]}, "'weather' twice"),
        ({"temperature": -1}, "temperature"),
    ],
)
async def test_impossible_options_are_refused(options: dict[str, Any], problem: str) -> None:
    @tool
    async def ask(ctx: BranchContext) -> SampleResult[None]:
        return await ctx.converse("Go.", **options)

    with pytest.raises(ValueError, match=problem):
        await run_tool(ask, {}, MockClient())


async def test_an_empty_reply_ends_the_conversation_with_something_to_send(replay: bool) -> None:
    @tool
    async def ask(ctx: BranchContext) -> list[Message]:
        await ctx.converse("Go.")
        return list(ctx.messages)

    client = MockClient(samples=[SampleReply(content=(), model="m")])
    prompt, answer = await run_tool(ask, {}, client, replay=replay)
    assert prompt == user("Go.")
    assert answer.content


class Others:
    """A source of tools, like ``RemoteTools``; the source is not a tool."""

    def __repr__(self) -> str:
        return "RemoteTools()"


@pytest.mark.parametrize("given", [[Others()], Others(), [print], ["weather"]], ids=str)
async def test_a_value_that_is_no_tool_is_refused_in_one_sentence(given: Any) -> None:
    @tool
    async def talk(ctx: BranchContext) -> str:
        with pytest.raises(TypeError, match="Agent\\(tools=\\[RemoteTools") as caught:
            _ = ctx.converse("Hello", tools=given)
        return str(caught.value)

    said = await run_tool(talk, {}, MockClient())
    assert said.startswith(
        "converse(tools=…) takes a list of @tool functions and HandoffTools, and "
    )


async def test_a_tool_call_without_an_object_as_arguments_gets_an_error_result(
    replay: bool,
) -> None:
    """The tool does not run, even if it takes no arguments. The other calls of the reply run."""
    broken = ToolUseBlock(id="u9", name="refuse", input={}, malformed='["a"]')
    rome = calls(("weather", {"city": "Rome"}))
    reply = rome.model_copy(update={"content": (broken, *rome.content)})
    client = MockClient(samples=[reply, "Done."])
    await run_tool(conversing(weather, refuse), {}, client, replay=replay)
    no, yes = texts(client.sample_calls[-1].messages)
    assert "must be one JSON object" in no
    assert '["a"]' in no
    assert json.loads(yes)["city"] == "Rome"

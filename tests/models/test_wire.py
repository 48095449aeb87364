"""The requests that providers really receive, and the translation of their answers.

The tests use the providers' own clients, with a local server that refuses faulty requests.
"""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from anabranch import assistant, user
from anabranch.messages import SampleReply, SampleRequest, TextBlock, ToolResultBlock, ToolUseBlock
from anabranch.models import open_model
from tests.models.harness import ANTHROPIC, LOOK, OLLAMA, OPENAI, REQUEST, everywhere
from tests.models.provider_server import Call, Provider, Say

ONCE_MORE = Say("Once more.", (Call("call_9", "look", {"at": "street"}),))


def parts_of(reply: SampleReply) -> tuple[str, list[tuple[str, str, Any]], str | None]:
    return (
        reply.text,
        [(call.id, call.name, call.arguments) for call in reply.tool_calls],
        reply.stop_reason,
    )


@everywhere
async def test_a_reply_arrives_with_its_text_its_calls_and_its_price(
    provider: Provider, model: str
) -> None:
    provider.will(ONCE_MORE)
    reply = await open_model(model).sample(REQUEST)
    calls = [("call_9", "look", {"at": "street"})]
    # Responses end with "completed", with or without calls.
    assert parts_of(reply) == ("Once more.", calls, "endTurn" if model == OPENAI else "toolUse")
    assert reply.usage is not None
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (11, 5)
    assert reply.usage.model_dump().keys() == {"input_tokens", "output_tokens"}


async def test_anthropic_is_sent_its_messages_format(provider: Provider) -> None:
    provider.will(ONCE_MORE)
    reply = await open_model(ANTHROPIC).sample(REQUEST)
    sent = provider.bodies[0]
    assert (sent["model"], sent["max_tokens"]) == ("claude-sonnet-4-6", 77)
    assert "Be brief." in json.dumps(sent["system"])
    assert [message["role"] for message in sent["messages"]] == ["user", "assistant", "user"]
    use, result = sent["messages"][1]["content"][0], sent["messages"][2]["content"][0]
    assert (use["type"], use["id"], use["input"]) == ("tool_use", "u1", {"at": "sky"})
    assert (result["type"], result["tool_use_id"]) == ("tool_result", "u1")
    assert "rain" in json.dumps(result["content"])
    assert (sent["tools"][0]["name"], sent["tool_choice"]["type"]) == ("look", "any")
    assert reply.model == "claude-test-1"


async def test_a_model_without_forced_tool_choice_is_instructed_to_call_a_tool(
    provider: Provider,
) -> None:
    provider.will(ONCE_MORE)
    await open_model("anthropic:claude-sonnet-5-5").sample(REQUEST)
    assert provider.bodies[0]["tool_choice"]["type"] == "auto"
    system = json.dumps(provider.bodies[0]["system"])
    assert "Be brief." in system
    assert "Answer by calling one of the tools." in system


async def test_openai_is_sent_its_responses_format(provider: Provider) -> None:
    provider.will(ONCE_MORE)
    reply = await open_model(OPENAI).sample(REQUEST)
    sent = provider.bodies[0]
    assert provider.paths == ["/responses"]
    assert (sent["model"], sent["max_output_tokens"]) == ("gpt-4o", 77)
    assert "Be brief." in json.dumps(sent)
    assert [(i["call_id"], i["type"]) for i in sent["input"] if "call_id" in i] == [
        ("u1", "function_call"),
        ("u1", "function_call_output"),
    ]
    assert (sent["tools"][0]["name"], sent["tool_choice"]) == ("look", "required")
    assert reply.model == "gpt-test-1"


async def test_ollama_is_sent_the_chat_completions_format(provider: Provider) -> None:
    provider.will(Say("Take a coat.", reason="length"))
    reply = await open_model(OLLAMA).sample(REQUEST)
    sent = provider.bodies[0]
    assert provider.paths == ["/v1/chat/completions"]
    assert [message["role"] for message in sent["messages"]] == [
        "system",
        "user",
        "assistant",
        "tool",
    ]
    assert sent["messages"][2]["tool_calls"][0]["id"] == sent["messages"][3]["tool_call_id"] == "u1"
    assert sent["tools"][0]["function"]["name"] == "look"
    assert 77 in (sent.get("max_tokens"), sent.get("max_completion_tokens"))
    assert (reply.text, reply.model, reply.stop_reason) == (
        "Take a coat.",
        "qwen-test",
        "maxTokens",
    )


TUNED = SampleRequest(
    messages=(user("Count."),),
    max_tokens=9,
    temperature=0.5,
    stop_sequences=("three", "four"),
    include_context="thisServer",
    metadata={"user_id": "u1"},
)


@everywhere
async def test_request_parameters_become_the_providers_parameters(
    provider: Provider, model: str
) -> None:
    provider.will(Say("one two"))
    await open_model(model).sample(TUNED)
    sent = provider.bodies[0]
    assert (sent["temperature"], sent["metadata"]) == (0.5, {"user_id": "u1"})
    stops = {ANTHROPIC: "stop_sequences", OLLAMA: "stop"}
    # OpenAI's Responses API has no option for stop sequences.
    assert model == OPENAI or sent[stops[model]] == ["three", "four"]


@everywhere
async def test_a_reply_ends_at_a_stop_sequence_for_every_provider(
    provider: Provider, model: str
) -> None:
    provider.will(Say("one two three four", (Call("call_9", "look", {}),)))
    reply = await open_model(model).sample(TUNED)
    assert (reply.content, reply.stop_reason) == ((TextBlock(text="one two "),), "stopSequence")


async def test_a_stop_reason_of_the_provider_is_reported(provider: Provider) -> None:
    provider.will(Say("one two ", reason="stop_sequence"))
    reply = await open_model(ANTHROPIC).sample(TUNED)
    assert (reply.text, reply.stop_reason) == ("one two ", "stopSequence")


@everywhere
async def test_tokens_read_from_the_cache_are_reported_and_part_of_the_input(
    provider: Provider, model: str
) -> None:
    provider.will(Say("hi", cached=(4, 0)))
    usage = (await open_model(model).sample(REQUEST)).usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens) == (11, 5, 4)


async def test_tokens_written_to_the_cache_are_reported_where_charged(provider: Provider) -> None:
    provider.will(Say("hi", cached=(4, 3)))
    usage = (await open_model(ANTHROPIC).sample(REQUEST)).usage
    assert usage is not None
    assert (usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens) == (11, 4, 3)


@pytest.mark.parametrize("streamed", [False, True])
async def test_anthropic_is_asked_to_cache_all_of_a_conversation(
    provider: Provider, streamed: bool
) -> None:
    """Anthropic caches only up to the marks."""
    provider.will(Say("hi"))
    opened = open_model(ANTHROPIC, cache=True)
    await (_sampled(opened, REQUEST) if streamed else opened.sample(REQUEST))
    sent = provider.bodies[0]
    # The first mark is that of the request's last part.
    ends = [sent, sent["system"][-1], sent["tools"][-1]]
    assert [end["cache_control"]["type"] for end in ends] == ["ephemeral"] * 3
    assert json.dumps(sent).count("cache_control") == len(ends)


@everywhere
async def test_nothing_is_cached_without_a_request_and_no_single_question(
    provider: Provider, model: str
) -> None:
    alone = SampleRequest(messages=(user("Which is the best?"),), max_tokens=9)
    provider.will(Say("a"), Say("b"))
    await open_model(model).sample(REQUEST)
    await open_model(model, cache=True).sample(alone)
    assert "cache" not in json.dumps(provider.bodies)


@pytest.mark.parametrize("model", [OPENAI, OLLAMA])
async def test_providers_that_cache_automatically_get_the_same_request(
    provider: Provider, model: str
) -> None:
    provider.will(Say("a"), Say("b"))
    for cache in (False, True):
        await open_model(model, cache=cache).sample(REQUEST)
    assert provider.bodies[0] == provider.bodies[1]


@everywhere
@pytest.mark.parametrize("streamed", [False, True])
async def test_names_that_a_provider_refuses_are_translated_in_both_directions(
    provider: Provider, model: str, streamed: bool
) -> None:
    """Tools of other servers have dots and slashes in their names, and journals have them in ids."""
    weather = LOOK.model_copy(update={"name": "weather/now.v2"})
    used = ToolUseBlock(id="pick/analyze#1/sample.1", name="weather/now.v2", input={})
    result = ToolResultBlock(tool_use_id=used.id, content=(TextBlock(text="rain"),))
    request = SampleRequest(
        messages=(user("Is it raining?"), assistant([used]), user([result])),
        max_tokens=9,
        tools=(weather, LOOK),
    )
    opened = open_model(model)
    provider.will(Say("ok"))
    await opened.sample(request)
    tools = provider.bodies[0]["tools"]
    name = (tools[0].get("function") or tools[0])["name"]
    assert name in json.dumps(provider.bodies[0].get("messages", provider.bodies[0].get("input")))

    provider.will(Say("", (Call("c1", name), Call("c2", "look"), Call("c3", "made_up"))))
    reply = await _sampled(opened, request) if streamed else await opened.sample(request)
    assert [call.name for call in reply.tool_calls] == ["weather/now.v2", "look", "made_up"]


async def _sampled(model: Any, request: SampleRequest) -> SampleReply:
    async with model.stream(request) as stream:
        async for _ in stream:
            pass
    reply: SampleReply = stream.reply
    return reply


@dataclass(frozen=True)
class Written(Call):
    """A call with any text as its arguments."""

    text: str = ""

    @property
    def json(self) -> str:
        return self.text


TWO_OBJECTS = '{"at": "Denver"}{"at": "Moab"}'


@pytest.mark.parametrize("model", [OPENAI, OLLAMA])
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    "text",
    [TWO_OBJECTS, '{"at": "str', '["Denver"]', '"Denver"', "Denver", "7", '"[1]"', "[" * 9999],
)
async def test_arguments_other_than_an_object_arrive_unchanged(
    provider: Provider, model: str, streamed: bool, text: str
) -> None:
    """The call's input is empty, also when the call returns with the result that explains the fault."""
    provider.will(Say("", (Written("c1", "look", text=text),)))
    opened = open_model(model)
    reply = await _sampled(opened, REQUEST) if streamed else await opened.sample(REQUEST)
    (call,) = reply.tool_calls
    assert (call.arguments, call.malformed) == ({}, text)
    said = assistant(reply.content)
    result = ToolResultBlock(tool_use_id=call.id, content=(TextBlock(text="No."),), is_error=True)
    provider.will(Say("Sorry."))
    again = REQUEST.model_copy(update={"messages": (user("?"), said, user([result]))})
    assert (await opened.sample(again)).text == "Sorry."
    assert "INVALID_JSON" not in json.dumps(provider.bodies[-1])


@pytest.mark.parametrize("model", [OPENAI, OLLAMA])
@pytest.mark.parametrize(
    ("text", "read"),
    [("", {}), (" ", {}), ("null", {}), (json.dumps('{"at": "sea"}'), {"at": "sea"})],
)
async def test_arguments_with_an_obvious_object_are_read(
    provider: Provider, model: str, text: str, read: dict[str, Any]
) -> None:
    provider.will(Say("", (Written("c1", "look", text=text),)))
    (call,) = (await open_model(model).sample(REQUEST)).tool_calls
    assert (call.arguments, call.malformed) == (read, None)
    assert call.model_dump().keys() == {"id", "name", "arguments"}


async def test_arguments_cut_at_the_token_limit_are_malformed(provider: Provider) -> None:
    provider.will(Say("", (Written("c1", "look", text='{"at": "str'),), reason="length"))
    reply = await open_model(OLLAMA).sample(REQUEST)
    assert (reply.stop_reason, reply.tool_calls[0].malformed) == ("maxTokens", '{"at": "str')

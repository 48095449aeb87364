"""Streamed replies over a real socket: complete, left early, cancelled, and broken."""

from typing import Any

import anyio
import pytest

from anabranch import assistant, user
from anabranch.messages import SampleReply, SampleRequest, TextBlock, Usage
from anabranch.models import (
    INTERRUPTED,
    ProviderError,
    ScriptedModel,
    StreamingSampler,
    as_streaming,
    open_model,
)
from tests.models.harness import (
    ANTHROPIC,
    FIRST_WORDS,
    LONG,
    LOOK,
    OLLAMA,
    OPENAI,
    REQUEST,
    everywhere,
)
from tests.models.provider_server import Call, Provider, Say
from tests.patience import PATIENCE

CALLS = (Call("c1", "look", {"at": "street"}), Call("c2", "look", {"at": "sky"}))


async def watched(model: StreamingSampler, request: SampleRequest) -> tuple[list[str], SampleReply]:
    async with model.stream(request) as stream:
        texts = [text async for text in stream]
    return texts, stream.reply


async def broken(model: StreamingSampler) -> tuple[ProviderError, str, SampleReply]:
    """Return the error in the middle of a stream, the text before it, and the received reply."""
    heard = ""
    async with model.stream(REQUEST) as stream:
        try:
            async for text in stream:
                heard += text
        except ProviderError as error:
            return error, heard, stream.reply
    raise AssertionError("the stream has ended in good order")


@everywhere
async def test_a_streamed_reply_equals_the_plain_reply(provider: Provider, model: str) -> None:
    provider.will(say := Say(LONG, CALLS, cached=(4, 0)), say)
    opened = open_model(model)
    texts, reply = await watched(opened, REQUEST)
    assert "".join(texts) == LONG
    assert len(texts) > 1
    assert "" not in texts
    assert reply == await opened.sample(REQUEST)
    assert [call.arguments for call in reply.tool_calls] == [{"at": "street"}, {"at": "sky"}]


@everywhere
async def test_a_reply_with_only_calls_streams_no_text(provider: Provider, model: str) -> None:
    provider.will(Say(calls=CALLS))
    texts, reply = await watched(open_model(model), REQUEST)
    assert texts == []
    assert [call.id for call in reply.tool_calls] == ["c1", "c2"]


@everywhere
async def test_a_streamed_request_differs_only_in_its_stream_options(
    provider: Provider, model: str
) -> None:
    provider.will(Say("a"), Say("b"))
    opened = open_model(model)
    await opened.sample(REQUEST)
    await watched(opened, REQUEST)
    plain, streamed = provider.bodies
    assert streamed["stream"] is True
    extra = {"stream", "stream_options"}
    assert {key: value for key, value in streamed.items() if key not in extra} == {
        key: value for key, value in plain.items() if key not in extra
    }


@everywhere
async def test_a_stream_left_early_is_closed_and_has_the_received_part(
    provider: Provider, model: str
) -> None:
    """The provider has sent four letters and waits; the model does not wait for the rest."""
    provider.will(Say(LONG, CALLS, cut=FIRST_WORDS[model], end="silent"))
    with anyio.fail_after(PATIENCE):
        async with open_model(model).stream(REQUEST) as stream:
            async for text in stream:
                assert text == LONG[:4]
                break
        await provider.left.wait()
    assert (stream.reply.text, stream.reply.stop_reason) == (LONG[:4], INTERRUPTED)


@everywhere
async def test_a_cancelled_stream_is_closed_and_has_the_received_part(
    provider: Provider, model: str
) -> None:
    provider.will(Say(LONG, cut=FIRST_WORDS[model], end="silent"))
    heard = anyio.Event()
    replies: list[SampleReply] = []

    async def turn() -> None:
        async with open_model(model).stream(REQUEST) as stream:
            try:
                async for _ in stream:
                    heard.set()
            finally:
                replies.append(stream.reply)

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(turn)
            await heard.wait()
            tasks.cancel_scope.cancel()
        await provider.left.wait()
    assert [(reply.text, reply.stop_reason) for reply in replies] == [(LONG[:4], INTERRUPTED)]


@everywhere
async def test_an_exception_of_the_reader_is_raised_and_closes_the_stream(
    provider: Provider, model: str
) -> None:
    provider.will(Say(LONG, cut=FIRST_WORDS[model], end="silent"))

    async def watch() -> None:
        async with open_model(model).stream(REQUEST) as stream:
            async for _ in stream:
                raise KeyError("the watcher's")

    with anyio.fail_after(PATIENCE):
        with pytest.raises(KeyError, match="the watcher's"):
            await watch()
        await provider.left.wait()


@everywhere
async def test_a_broken_connection_is_an_error_and_the_stream_has_the_received_part(
    provider: Provider, model: str
) -> None:
    provider.will(Say(LONG, CALLS, cut=FIRST_WORDS[model] + 1))
    error, heard, reply = await broken(open_model(model))
    assert "broke off" in str(error)
    assert error.passing
    assert heard == LONG[:8] == reply.text
    assert reply.stop_reason == INTERRUPTED
    assert len(provider.bodies) == 1


@pytest.mark.parametrize("model", [ANTHROPIC, OPENAI])
async def test_an_orderly_close_in_the_middle_is_an_interruption(
    provider: Provider, model: str
) -> None:
    """A proxy may close a stream in good order; the provider's final event is missing."""
    provider.will(Say(LONG, cut=FIRST_WORDS[model], end="closed"))
    error, heard, reply = await broken(open_model(model))
    assert "broke off in the middle" in str(error)
    assert error.passing
    assert heard == LONG[:4]
    assert (reply.text, reply.stop_reason) == (LONG[:4], INTERRUPTED)


async def test_an_orderly_close_of_chat_completions_counts_as_an_end(provider: Provider) -> None:
    """This test pins a known gap: some providers with this format never send a stop reason."""
    provider.will(Say(LONG, cut=FIRST_WORDS[OLLAMA], end="closed"))
    texts, reply = await watched(open_model(OLLAMA), REQUEST)
    assert (texts, reply.stop_reason) == ([LONG[:4]], "endTurn")


@everywhere
async def test_an_error_in_the_middle_is_mapped_like_an_early_one(
    provider: Provider, model: str
) -> None:
    provider.will(Say(LONG, cut=FIRST_WORDS[model], end="overloaded"))
    error, heard, reply = await broken(open_model(model))
    assert "Overloaded" in str(error)
    assert error.passing
    assert heard == LONG[:4]
    assert (reply.text, reply.stop_reason) == (LONG[:4], INTERRUPTED)


@everywhere
async def test_a_partial_tool_call_is_dropped(provider: Provider, model: str) -> None:
    """The arguments so far may be complete by accident, but the provider never ended the call."""
    events = {ANTHROPIC: 6, OPENAI: 7, OLLAMA: 3}[model]
    provider.will(Say("", CALLS, cut=events))
    _, _, reply = await broken(open_model(model))
    assert reply.content == (TextBlock(text=""),)


async def test_an_interrupted_reply_has_the_usage_so_far(provider: Provider) -> None:
    provider.will(Say(LONG, cut=4, end="closed"))
    _, _, reply = await broken(open_model(ANTHROPIC))
    assert reply.usage == Usage(input_tokens=11, output_tokens=1)


async def test_no_request_is_sent_before_a_stream_is_entered(provider: Provider) -> None:
    open_model(ANTHROPIC).stream(REQUEST)
    await anyio.lowlevel.checkpoint()
    assert provider.paths == []


async def test_a_script_is_streamed_in_words() -> None:
    script: list[dict[str, Any]] = [
        {"text": " one  two\nthree ", "tool_calls": [{"name": "look"}]},
        {"text": ""},
    ]
    model = ScriptedModel(script)
    request = SampleRequest(messages=(user("hi"),), max_tokens=9, tools=(LOOK,))
    texts, reply = await watched(model, request)
    assert texts == [" one", "  two", "\nthree "]
    assert (reply.text, [call.name for call in reply.tool_calls]) == (" one  two\nthree ", ["look"])
    assert (await watched(model, request))[0] == []


async def test_an_interrupted_script_has_its_spoken_part() -> None:
    model = ScriptedModel([{"text": "one two", "tool_calls": [{"name": "look"}]}])
    async with model.stream(SampleRequest(messages=(user("hi"),), max_tokens=9)) as stream:
        assert stream.reply.content == (TextBlock(text=""),)
        async for _ in stream:
            break
    assert stream.reply.content == (TextBlock(text="one"),)
    assert (stream.reply.stop_reason, stream.reply.model) == (INTERRUPTED, "script")


class Plain:
    """A sampler as an author may write one."""

    async def sample(self, request: SampleRequest) -> SampleReply:
        return SampleReply(content=assistant("all at once").content, stop_reason="endTurn")


async def test_a_sampler_without_streams_gives_its_reply_in_one_piece() -> None:
    model = as_streaming(Plain())
    texts, reply = await watched(model, REQUEST)
    assert texts == ["all at once"]
    assert reply == await model.sample(REQUEST) == await Plain().sample(REQUEST)


def test_a_streaming_sampler_is_not_wrapped() -> None:
    model = ScriptedModel([])
    assert as_streaming(model) is model

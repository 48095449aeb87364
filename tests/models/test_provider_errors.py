"""Refusals and silence of a provider become one clear sentence with a remedy."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable

import anyio
import pytest

from anabranch import Message, user
from anabranch.messages import AudioBlock, DocumentBlock, FileBlock, SampleRequest, ToolResultBlock
from anabranch.models import ProviderError, StreamingSampler, open_model
from tests.models.harness import ANTHROPIC, OLLAMA, OPENAI, REQUEST, everywhere
from tests.models.provider_server import Provider, Refuse, Say, Silence
from tests.patience import PATIENCE
from tests.sockets import listening

Ask = Callable[[StreamingSampler, SampleRequest], Awaitable[str]]


async def plainly(model: StreamingSampler, request: SampleRequest) -> str:
    return (await model.sample(request)).text


async def watching(model: StreamingSampler, request: SampleRequest) -> str:
    async with model.stream(request) as stream:
        return "".join([text async for text in stream])


either_way = pytest.mark.parametrize("ask", [plainly, watching])
NO_MORE = {"x-should-retry": "false"}


@everywhere
@either_way
@pytest.mark.parametrize(
    ("refusal", "said", "passing"),
    [
        (Refuse(429, "too fast"), "wants fewer requests (429): too fast. Ask again later.", True),
        (
            Refuse(429, "too fast", headers=NO_MORE | {"retry-after": "7"}),
            "wants fewer requests (429): too fast. Ask again in 7 s.",
            True,
        ),
        (Refuse(500, "oops."), "failed (500): oops. Ask again later.", True),
        (Refuse(503, "busy"), "is overloaded (503): busy. Ask again later.", True),
        (Refuse(401, "who?"), "refused the key (401): who?. Check the provider's key.", False),
        (Refuse(404, "what?"), "is not known there (404): what?. Check the model's name.", False),
        (
            Refuse(400, "x" * 400),
            f"refused the request (400): {'x' * 300}…. Asking the same again will not help.",
            False,
        ),
    ],
)
async def test_a_refusal_names_the_problem_and_the_remedy(
    provider: Provider, model: str, ask: Ask, refusal: Refuse, said: str, passing: bool
) -> None:
    provider.will(refusal)
    with pytest.raises(ProviderError) as raised:
        await ask(open_model(model), REQUEST)
    assert str(raised.value) == f"{model} {said}"
    assert (raised.value.status, raised.value.passing) == (refusal.status, passing)
    assert raised.value.retry_after == (7 if "retry-after" in refusal.headers else None)
    assert len(provider.bodies) == 1


@pytest.mark.parametrize(
    ("model", "refusal"),
    [
        (ANTHROPIC, Refuse(400, "prompt is too long: 9 tokens > 8 maximum")),
        (OPENAI, Refuse(400, "This model's maximum context length is 8 tokens.")),
    ],
)
async def test_a_conversation_that_is_too_long_raises_a_special_error(
    provider: Provider, model: str, refusal: Refuse
) -> None:
    provider.will(refusal)
    with pytest.raises(ProviderError, match="cannot take so long a conversation"):
        await open_model(model).sample(REQUEST)


@everywhere
@either_way
async def test_a_temporary_refusal_is_retried(provider: Provider, model: str, ask: Ask) -> None:
    at_once = {"retry-after-ms": "1"}
    provider.will(Refuse(429, headers=at_once), Refuse(500, headers=at_once), Say("here"))
    assert await ask(open_model(model, retries=2), REQUEST) == "here"
    assert len(provider.bodies) == 3


@everywhere
@either_way
async def test_a_temporary_refusal_is_raised_without_retries(
    provider: Provider, model: str, ask: Ask
) -> None:
    provider.will(Refuse(429, headers={"retry-after-ms": "1"}))
    with pytest.raises(ProviderError):
        await ask(open_model(model, retries=0), REQUEST)
    assert len(provider.bodies) == 1


def let_ten_seconds_pass() -> None:
    """Advance the event loop's timers by ten seconds."""
    loop = asyncio.get_running_loop()
    time = loop.time
    setattr(loop, "time", lambda: time() + 10)  # noqa: B010 - a method


@everywhere
@either_way
async def test_a_request_to_a_silent_provider_times_out(
    provider: Provider, model: str, ask: Ask
) -> None:
    provider.will(Silence())
    provider.on_silence = let_ten_seconds_pass
    with anyio.fail_after(PATIENCE):
        with pytest.raises(ProviderError, match="did not answer in time") as raised:
            await ask(open_model(model, timeout=5, retries=0), REQUEST)
        await provider.left.wait()
    assert (raised.value.status, raised.value.passing) == (None, True)


@everywhere
async def test_a_stream_of_a_provider_that_falls_silent_times_out(
    provider: Provider, model: str
) -> None:
    provider.will(Say("Take a coat.", cut=1, end="silent"))
    provider.on_silence = let_ten_seconds_pass
    with anyio.fail_after(PATIENCE):
        with pytest.raises(ProviderError, match="did not answer in time"):
            await watching(open_model(model, timeout=5), REQUEST)
        await provider.left.wait()


@everywhere
@either_way
async def test_an_unreachable_provider_is_named(
    provider: Provider, model: str, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("ANTHROPIC_BASE_URL", "OPENAI_BASE_URL", "OLLAMA_BASE_URL"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    with pytest.raises(ProviderError, match="could not be reached") as raised:
        await ask(open_model(model, retries=0), REQUEST)
    assert str(raised.value).startswith(f"{model} ")


@pytest.fixture
async def gibberish(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """Serve a web page in place of the interface."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 6\r\n"
            b"connection: close\r\n\r\n<html>"
        )

    async with listening(serve) as port:
        monkeypatch.setenv("OLLAMA_BASE_URL", f"http://127.0.0.1:{port}/v1")
        yield


@pytest.mark.usefixtures("gibberish")
async def test_a_response_other_than_a_reply_is_refused() -> None:
    with pytest.raises(ProviderError, match=f"{OLLAMA} gave no reply that can be used"):
        await open_model(OLLAMA).sample(REQUEST)


async def test_a_model_gets_the_name_of_a_file_that_its_provider_does_not_accept(
    provider: Provider,
) -> None:
    """Anthropic's models accept neither audio nor spreadsheets."""
    sheet = DocumentBlock(data="aGk=", mime_type="application/vnd.ms-excel", name="a.xls")
    sound, pdf = AudioBlock(data="aGk=", mime_type="audio/wav"), "application/pdf"
    image = FileBlock(mime_type="image/png", url="https://example.org/a.png")
    paper, note = (
        FileBlock(mime_type=kind, url="https://example.org/b") for kind in (pdf, "text/plain")
    )
    taken = DocumentBlock(data="JVBERi0=", mime_type=pdf)
    said = Message(role="user", content=(sound, sheet, taken, image, paper, note))
    provider.will(Say("Fine."))
    await open_model(ANTHROPIC).sample(SampleRequest(messages=(said,), max_tokens=9))
    [body] = provider.bodies
    parts = body["messages"][0]["content"]
    assert [part.get("text") for part in parts[:2]] == [
        "(a sound: audio/wav, 2 bytes)",
        "(a file: a.xls, application/vnd.ms-excel, 2 bytes)",
    ]
    assert [(part["type"], part["source"]["type"]) for part in parts[2:5]] == [
        ("document", "base64"),
        ("image", "url"),
        ("document", "url"),
    ]
    assert parts[5]["text"] == "(a file: https://example.org/b, text/plain)"


@pytest.mark.parametrize("model", [ANTHROPIC, OPENAI, "openai-chat:gpt-4o", OLLAMA])
async def test_a_model_gets_a_pdf_in_a_result_if_its_provider_accepts_it(
    provider: Provider, model: str
) -> None:
    """OpenAI's chat interface accepts a PDF in the message after the result; others accept none."""
    pdf = DocumentBlock(data="JVBERi0=", mime_type="application/pdf", name="a.pdf")
    *before, _ = REQUEST.messages
    returned = user([ToolResultBlock(tool_use_id="u1", content=(pdf,))])
    provider.will(Say("Fine."))
    asked = REQUEST.model_copy(update={"messages": (*before, returned), "tool_choice": None})
    await open_model(model).sample(asked)
    [body] = provider.bodies
    sent = json.dumps(body.get("messages") or body["input"])
    assert ("JVBERi0=" in sent) == (model != OLLAMA)
    assert ("(a file: a.pdf, application/pdf, 5 bytes)" in sent) == (model == OLLAMA)
    place = {
        ANTHROPIC: '"type": "document"',
        OPENAI: '"type": "input_file"',
        OLLAMA: '"role": "tool"',
    }
    assert place.get(model, '"type": "file"') in sent


async def test_a_provider_gets_audio_only_in_the_formats_that_it_accepts(
    provider: Provider,
) -> None:
    wav, flac = (
        AudioBlock(data=base64.b64encode(data).decode(), mime_type=kind)
        for data, kind in ((b"RIFF....WAVE", "audio/wav"), (b"fLaC", "audio/flac"))
    )
    provider.will(Say("Fine."))
    asked = SampleRequest(messages=(user([wav, flac]),), max_tokens=9)
    await open_model("openai-chat:gpt-4o-audio-preview").sample(asked)
    [body] = provider.bodies
    heard, named = body["messages"][0]["content"]
    assert heard["input_audio"]["format"] == "wav"
    assert named["text"] == "(a sound: audio/flac, 4 bytes)"

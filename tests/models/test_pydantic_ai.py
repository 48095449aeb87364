"""The translation to and from pydantic-ai, with pydantic-ai's test models."""

import base64
from typing import Any

import pytest
from pydantic_ai import messages as ai
from pydantic_ai.models.test import TestModel
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.usage import RequestUsage

from anabranch import ToolSpec, assistant, user
from anabranch.messages import (
    AudioBlock,
    ImageBlock,
    Message,
    SampleRequest,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from anabranch.models import ModelError, as_sampler
from anabranch.models._pydantic_ai import ProviderModel
from anabranch.models._translation import from_provider, to_provider
from tests.models.harness import replying

PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()
LOOK = ToolSpec(name="look", description="Look.", input_schema={"type": "object", "properties": {}})


def asking(*messages: Message, **options: Any) -> SampleRequest:
    return SampleRequest(messages=messages, max_tokens=50, **options)


def shapes(messages: list[ai.ModelMessage]) -> list[list[tuple[str, Any]]]:
    return [
        [
            (type(part).__name__, part.args if isinstance(part, ai.ToolCallPart) else part.content)
            for part in message.parts
            if isinstance(
                part,
                ai.SystemPromptPart
                | ai.UserPromptPart
                | ai.ToolReturnPart
                | ai.TextPart
                | ai.ToolCallPart
                | ai.FilePart,
            )
        ]
        for message in messages
    ]


@pytest.mark.parametrize(
    "profile",
    [
        ModelProfile(supports_forced_tool_choice=False),
        ModelProfile(thinking_always_enabled=True, supports_forced_tool_choice_with_thinking=False),
    ],
)
async def test_a_model_without_forced_tool_choice_gets_an_instruction(
    profile: ModelProfile,
) -> None:
    model, asked = replying(ai.ModelResponse(parts=[ai.ToolCallPart("look")]), profile=profile)
    await ProviderModel(model).sample(asking(user("go"), tools=(LOOK,), tool_choice="required"))
    assert asked[0][1].model_settings["tool_choice"] == "auto"
    assert shapes(asked[0][0])[0] == [("SystemPromptPart", "Answer by calling one of the tools.")]


async def test_without_tools_no_choice_is_sent() -> None:
    model, asked = replying(ai.ModelResponse(parts=[ai.TextPart("fine")]))
    await ProviderModel(model).sample(asking(user("go"), tool_choice="none"))
    assert asked[0][1].model_settings == {"max_tokens": 50}


def test_a_tool_use_and_its_result_have_one_id_and_the_result_has_name_and_outcome() -> None:
    sent = to_provider(
        asking(
            assistant([TextBlock(text="hm"), ToolUseBlock(id="u1", name="look", input={"at": 1})]),
            user(
                [
                    ToolResultBlock(
                        tool_use_id="u1", content=(TextBlock(text="no"),), is_error=True
                    ),
                    TextBlock(text="try again"),
                ]
            ),
        )
    )
    call, result = sent[0].parts[1], sent[1].parts[0]
    assert isinstance(call, ai.ToolCallPart)
    assert isinstance(result, ai.ToolReturnPart)
    assert (call.tool_call_id, call.args) == ("u1", {"at": 1})
    assert (result.tool_call_id, result.tool_name, result.outcome) == ("u1", "look", "failed")
    assert shapes(sent)[1] == [("ToolReturnPart", "no"), ("UserPromptPart", "try again")]


def test_tool_results_go_before_other_text_of_the_user() -> None:
    """Both providers require the result directly after its tool use."""
    sent = to_provider(
        asking(
            assistant([ToolUseBlock(id="u1", name="look", input={})]),
            user([TextBlock(text="here:"), ToolResultBlock(tool_use_id="u1")]),
        )
    )
    assert shapes(sent)[1] == [("ToolReturnPart", ""), ("UserPromptPart", "here:")]


def test_images_and_sound_arrive_as_bytes_in_prompts_results_and_replies() -> None:
    image = ImageBlock(data=PIXEL, mime_type="image/png")
    sound = AudioBlock(data="cGl4ZWw=", mime_type="audio/wav")
    sent = to_provider(
        asking(
            user([TextBlock(text="see"), image, sound]),
            assistant([image, ToolUseBlock(id="u1", name="look", input={})]),
            user([ToolResultBlock(tool_use_id="u1", content=(TextBlock(text="it"), image))]),
        )
    )
    png = ai.BinaryContent(b"\x89PNG\r\n\x1a\n", media_type="image/png")
    wav = ai.BinaryContent(b"pixel", media_type="audio/wav")
    assert shapes(sent) == [
        [("UserPromptPart", ["see", png, wav])],
        [("FilePart", png), ("ToolCallPart", {})],
        [("ToolReturnPart", ["it", png])],
    ]


def test_a_provider_is_sent_an_image_under_its_own_type_or_its_name() -> None:
    """The message's declared type does not matter, for new and for stored messages."""
    blocks = (
        ImageBlock(data=base64.b64encode(b"\xff\xd8\xff\xe0").decode(), mime_type="image/png"),
        ImageBlock(data=base64.b64encode(b"<svg/>").decode(), mime_type="image/svg+xml"),
        AudioBlock(data=base64.b64encode(b"OggS").decode(), mime_type="audio/wav"),
    )
    [request] = to_provider(asking(user(blocks)))
    [prompt] = request.parts
    assert isinstance(prompt, ai.UserPromptPart)
    content: Any = prompt.content
    photo, drawing, sound = content
    assert isinstance(photo, ai.BinaryContent)
    assert isinstance(sound, ai.BinaryContent)
    assert (photo.media_type, sound.media_type) == ("image/jpeg", "audio/ogg")
    assert drawing == "(an image: image/svg+xml, 6 bytes)"


def test_blank_texts_are_left_out_and_a_message_without_content_says_so() -> None:
    """Anthropic requires a non-blank text and a non-empty message."""
    blank = TextBlock(text=" \n")
    sent = to_provider(
        asking(user([]), assistant([blank, TextBlock(text="a")]), user([blank]), system_prompt=" ")
    )
    assert shapes(sent) == [
        [("UserPromptPart", "(nothing)")],
        [("TextPart", "a")],
        [("UserPromptPart", "(nothing)")],
    ]


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (user([ToolResultBlock(tool_use_id="u9")]), "'u9' belongs to no tool use"),
        (user([ToolUseBlock(id="u9", name="a", input={})]), "'u9' is in a message of the user"),
        (assistant([ToolResultBlock(tool_use_id="u9")]), "'u9' is in a message of the assistant"),
    ],
)
def test_a_block_that_no_provider_accepts_is_named(message: Message, problem: str) -> None:
    with pytest.raises(ModelError, match=problem):
        to_provider(asking(message))


@pytest.mark.parametrize(
    ("finish", "stop_reason"),
    [
        ("stop", "endTurn"),
        ("length", "maxTokens"),
        ("tool_call", "toolUse"),
        ("content_filter", "content_filter"),
        (None, "endTurn"),
    ],
)
def test_stop_reasons_are_translated_to_the_protocol(finish: Any, stop_reason: str) -> None:
    response = ai.ModelResponse(parts=[ai.TextPart("a")], finish_reason=finish)
    assert from_provider(response, "m").stop_reason == stop_reason


def test_a_tool_call_without_a_finish_reason_is_tool_use() -> None:
    response = ai.ModelResponse(parts=[ai.ToolCallPart("look", '{"at": 2}', "id1")])
    reply = from_provider(response, "m")
    assert (reply.stop_reason, reply.tool_calls[0].arguments) == ("toolUse", {"at": 2})


def test_files_in_a_reply_become_blocks_and_thinking_does_not() -> None:
    response = ai.ModelResponse(
        parts=[
            ai.ThinkingPart("let me see"),
            ai.FilePart(ai.BinaryContent(b"\x89PNG\r\n\x1a\n", media_type="image/png")),
            ai.FilePart(ai.BinaryContent(b"pixel", media_type="audio/wav")),
            ai.FilePart(ai.BinaryContent(b"pixel", media_type="application/pdf")),
        ]
    )
    assert from_provider(response, "m").content == (
        ImageBlock(data=PIXEL, mime_type="image/png"),
        AudioBlock(data="cGl4ZWw=", mime_type="audio/wav"),
    )


def test_a_reply_without_content_is_an_empty_text() -> None:
    reply = from_provider(ai.ModelResponse(parts=[ai.TextPart("")]), "m")
    assert (reply.content, reply.model) == ((TextBlock(text=""),), "m")


def test_usage_is_absent_if_the_provider_did_not_report_it() -> None:
    response = ai.ModelResponse(
        parts=[], usage=RequestUsage(input_tokens=3, output_tokens=4), model_name="its-own-name"
    )
    reply = from_provider(response, "m")
    assert reply.usage is not None
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (3, 4)
    assert reply.model == "its-own-name"
    assert from_provider(ai.ModelResponse(parts=[]), "m").usage is None


@pytest.mark.parametrize(
    ("preferences", "chosen"),
    [
        (None, "large"),
        ({"hints": [{"name": "small"}]}, "small"),
        ({"hints": [{"name": "unknown"}, {"name": "function:small"}]}, "small"),
        ({"hints": [{"name": "unknown"}, {}, {"name": ""}, "small"]}, "large"),
        ({"hints": "small", "costPriority": 1}, "large"),
    ],
)
async def test_a_hint_chooses_among_several_models(preferences: Any, chosen: str) -> None:
    large, _ = replying(ai.ModelResponse(parts=[ai.TextPart("L")], model_name="large"), "large")
    small, _ = replying(ai.ModelResponse(parts=[ai.TextPart("S")], model_name="small"), "small")
    request = asking(user("hi"), model_preferences=preferences)
    assert (await ProviderModel(large, small).sample(request)).model == chosen


async def test_an_open_model_answers_samples() -> None:
    reply = await as_sampler(TestModel(custom_output_text="tested")).sample(asking(user("hi")))
    assert reply.text == "tested"

"""Translates messages to pydantic-ai's types, and replies back, with the reasoning of models.

Reasoning, which a provider signs, is stored with the block that follows it until its turn ends. Some
providers refuse a tool's result without the reasoning, and only the adapter of the same provider reads it.

Images, sounds and documents become parts of the request, or text. A URL is sent only to a provider
that fetches it: this process must not fetch a user's address.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from pydantic import TypeAdapter, ValidationError
from pydantic_ai import messages as ai
from pydantic_ai.models import Model

from anabranch._asking import tool_use
from anabranch._text import AUDIO, IMAGES, media_type
from anabranch.messages import (
    NOTHING,
    AudioBlock,
    Block,
    DocumentBlock,
    FileBlock,
    ImageBlock,
    Message,
    Reasoning,
    SampleReply,
    SampleRequest,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    Usage,
)
from anabranch.models._protocol import ModelError
from anabranch.models._tool_shapes import ToolShapes, shaped
from anabranch.tree import file_line, wire_name, with_reasoning_of_open_turn

Media: TypeAlias = ImageBlock | AudioBlock | DocumentBlock | FileBlock

_ANTHROPIC_URLS: Final = frozenset({"image", "application/pdf"})
_IMAGE_URLS: Final = frozenset({"image"})
_URLS: Final[Mapping[str, frozenset[str]]] = {
    "anthropic": _ANTHROPIC_URLS,
    "openai": _IMAGE_URLS,
    "groq": _IMAGE_URLS,
    "mistral": _IMAGE_URLS,
}
"""Kinds of files whose URLs each provider fetches, as pydantic-ai's adapters send them."""

_RESULT_DOCUMENTS: Final = frozenset(
    {"anthropic", "openai", "google", "google-cloud", "bedrock", "mistral"}
)
"""Providers that take documents in results of tools, or after them: pydantic-ai moves the files."""

_COMMON_SOUNDS: Final = frozenset({"audio/wav", "audio/mpeg"})
_SOUNDS: Final[Mapping[str, frozenset[str]]] = {"google": AUDIO, "google-cloud": AUDIO}
"""Types of sounds that providers take; all others take at most those of OpenAI's interface."""


@dataclass(frozen=True)
class TakenFiles:
    """The kinds of files that a model accepts; ``None`` stands for all types."""

    images: bool = True
    sounds: frozenset[str] | None = None
    documents: frozenset[str] | None = None
    result_documents: bool = True
    urls: frozenset[str] = frozenset()

    def has(self, mime_type: str) -> bool:
        match mime_type.partition("/")[0]:
            case "image":
                return self.images
            case "audio":
                return self.sounds is None or mime_type in self.sounds
            case "text":
                return True
            case _:
                return self.documents is None or mime_type in self.documents


ANY: Final = TakenFiles()
"""The files of a model that takes all files, and whose provider fetches no URL."""


def taken_files(model: Model[Any]) -> TakenFiles:
    profile = model.profile
    documents = profile.get("supported_document_media_types")
    sounds = _SOUNDS.get(model.system, _COMMON_SOUNDS)
    return TakenFiles(
        profile.get("supports_image_input", True),
        sounds if profile.get("supports_audio_file_input", True) else frozenset(),
        documents if profile.get("supports_document_input", True) else frozenset(),
        model.system in _RESULT_DOCUMENTS,
        _URLS.get(model.system, frozenset()),
    )


def file_part(
    block: Media, taken: TakenFiles = ANY, *, in_result: bool = False
) -> ai.BinaryContent | ai.ImageUrl | ai.DocumentUrl | str:
    if isinstance(block, FileBlock):
        return _address(block, taken) or file_line(block)
    data = base64.b64decode(block.data)
    kind = block.mime_type if isinstance(block, DocumentBlock) else media_type(data)
    match block:
        case ImageBlock():
            is_taken = taken.images and kind in IMAGES
        case AudioBlock():
            is_taken = taken.has(kind or block.mime_type)
        case DocumentBlock():
            is_taken = taken.has(block.mime_type) and (taken.result_documents or not in_result)
    if is_taken:
        return ai.BinaryContent(data, media_type=kind or block.mime_type)
    return file_line(block)


def _address(block: FileBlock, taken: TakenFiles) -> ai.ImageUrl | ai.DocumentUrl | None:
    if block.url is None:
        return None
    if block.kind == "image" and taken.images and "image" in taken.urls:
        return ai.ImageUrl(block.url)
    if block.mime_type in taken.urls:
        return ai.DocumentUrl(block.url, media_type=block.mime_type)
    return None


STOP_REASONS = {"stop": "endTurn", "length": "maxTokens", "tool_call": "toolUse"}
"""MCP's stop reasons, by pydantic-ai's; others, such as ``content_filter``, stay."""


def to_provider(
    request: SampleRequest,
    shapes: ToolShapes | None = None,
    taken: TakenFiles = ANY,
    provider: str = "",
) -> list[ai.ModelMessage]:
    """Return the conversation in pydantic-ai's types; ``provider`` gets only its own reasoning back."""
    shapes = shapes or shaped(request.tools or ())
    names: dict[str, str] = {}
    messages: list[ai.ModelMessage] = []
    if request.system_prompt and request.system_prompt.strip():
        messages.append(ai.ModelRequest(parts=[ai.SystemPromptPart(request.system_prompt)]))
    for message in with_reasoning_of_open_turn(request.messages):
        if message.role == "assistant":
            messages.append(_response(message, shapes, provider))
            names |= {
                block.id: shapes.name(block.name)
                for block in message.content
                if isinstance(block, ToolUseBlock)
            }
        else:
            messages.append(ai.ModelRequest(parts=list(_request_parts(message, names, taken))))
    return messages


def _not_blank(message: Message) -> Sequence[Block]:
    """Return the blocks without blank texts, at least one: providers reject blank and empty content."""
    blocks = [b for b in message.content if not isinstance(b, TextBlock) or b.text.strip()]
    return blocks or [TextBlock(text=NOTHING)]


def _response(message: Message, shapes: ToolShapes, provider: str) -> ai.ModelResponse:
    parts = [
        part for block in _not_blank(message) for part in _response_parts(block, shapes, provider)
    ]
    if not any(isinstance(part, ai.ThinkingPart) for part in parts):
        # Text before tool calls: OpenAI requires a call's output to follow the call.
        parts.sort(key=lambda part: isinstance(part, ai.ToolCallPart))
    return ai.ModelResponse(parts=parts)


def _response_parts(
    block: Block, shapes: ToolShapes, provider: str
) -> Iterator[ai.ModelResponsePart]:
    match block:
        case TextBlock():
            yield from _with_reasoning(ai.TextPart(block.text), block.reasoning, provider)
        case ToolUseBlock():
            arguments = shapes.sent(block.name, block.input)
            call = ai.ToolCallPart(shapes.name(block.name), arguments, wire_name(block.id))
            yield from _with_reasoning(call, block.reasoning, provider)
        case ImageBlock() | AudioBlock() | DocumentBlock() | FileBlock():
            file = file_part(block)
            yield (
                ai.FilePart(file) if isinstance(file, ai.BinaryContent) else ai.TextPart(str(file))
            )
        case ToolResultBlock():
            raise ModelError(
                f"Tool result {block.tool_use_id!r} is in a message of the assistant."
                " Put it into the user's next message."
            )


def _request_parts(
    message: Message, names: Mapping[str, str], taken: TakenFiles
) -> Iterator[ai.ModelRequestPart]:
    """Yield the tool results, then everything else as one prompt; providers require this order."""
    prompt: list[ai.UserContent] = []
    for block in _not_blank(message):
        match block:
            case TextBlock():
                prompt.append(block.text)
            case ImageBlock() | AudioBlock() | DocumentBlock() | FileBlock():
                prompt.append(file_part(block, taken))
            case ToolResultBlock():
                yield _tool_return(block, names, taken)
            case ToolUseBlock():
                raise ModelError(
                    f"Tool use {block.id!r} is in a message of the user."
                    " Put it into a message of the assistant."
                )
    match prompt:
        case []:
            return
        case [str(text)]:
            yield ai.UserPromptPart(text)
        case _:
            yield ai.UserPromptPart(prompt)


def _tool_return(
    block: ToolResultBlock, names: Mapping[str, str], taken: TakenFiles
) -> ai.ToolReturnPart:
    if block.tool_use_id not in names:
        raise ModelError(
            f"Tool result {block.tool_use_id!r} belongs to no tool use in the conversation."
            " Send the assistant's message with that tool use before it."
        )
    content: list[Any] = [
        part.text if isinstance(part, TextBlock) else file_part(part, taken, in_result=True)
        for part in block.content
    ]
    return ai.ToolReturnPart(
        tool_name=names[block.tool_use_id],
        content="\n".join(content) if all(isinstance(part, str) for part in content) else content,
        tool_call_id=wire_name(block.tool_use_id),
        outcome="failed" if block.is_error else "success",
    )


def from_provider(
    response: ai.ModelResponse, model: str, shapes: ToolShapes | None = None
) -> SampleReply:
    content = [
        block
        for part, reasoning in _without_thinking(response.parts)
        for block in _blocks(part, reasoning, shapes or ToolShapes())
    ]
    reason = response.finish_reason
    if reason is None:
        calls = any(isinstance(block, ToolUseBlock) for block in content)
        stopped = "toolUse" if calls else "endTurn"
    elif (response.provider_details or {}).get("finish_reason") == "stop_sequence":
        stopped = "stopSequence"
    else:
        stopped = STOP_REASONS.get(reason, reason)
    used = Usage(
        input_tokens=response.usage.input_tokens,
        output_tokens=response.usage.output_tokens,
        cache_read_tokens=response.usage.cache_read_tokens,
        cache_write_tokens=response.usage.cache_write_tokens,
    )
    return SampleReply(
        content=tuple(content) or (TextBlock(text=""),),
        model=response.model_name or model,
        stop_reason=stopped,
        # pydantic-ai reports zeros if the provider reported no usage.
        usage=used if used.total_tokens else None,
    )


def _blocks(
    part: ai.ModelResponsePart, reasoning: Reasoning | None, shapes: ToolShapes
) -> Iterator[Block]:
    match part:
        case ai.TextPart(content=text) if text:
            yield TextBlock(text=text, reasoning=reasoning)
        case ai.ToolCallPart():
            use = tool_use(part.tool_call_id, part.tool_name, part.args)
            name, arguments = shapes.read(part.tool_name, use.input)
            changes = {"name": name, "input": arguments, "reasoning": reasoning}
            yield use.model_copy(update=changes)
        case ai.FilePart(content=file) if file.is_image:
            yield ImageBlock(data=file.base64, mime_type=file.media_type)
        case ai.FilePart(content=file) if file.is_audio:
            yield AudioBlock(data=file.base64, mime_type=file.media_type)
        case _:  # calls of the provider's own tools
            return


@dataclass
class _Data:
    """The content of ``Reasoning.data``: the thinking before a block, and the provider's data of it."""

    thinking: list[ai.ThinkingPart] = field(default_factory=list[ai.ThinkingPart])
    id: str | None = None
    details: dict[str, Any] | None = None


_DATA: TypeAdapter[_Data] = TypeAdapter(_Data)


def _without_thinking(
    parts: Sequence[ai.ModelResponsePart],
) -> Iterator[tuple[ai.ModelResponsePart, Reasoning | None]]:
    """Yield the parts of a reply with their reasoning, which is needed only after tool calls."""
    is_wanted = _is_wanted(parts)
    thinking: list[ai.ThinkingPart] = []
    for part in parts:
        if isinstance(part, ai.ThinkingPart):
            thinking += [part] if part.provider_name else []
        elif is_wanted and _can_hold(part):
            yield part, _reasoning(part, thinking)
            thinking = []
        else:
            yield part, None


def _is_wanted(parts: Sequence[ai.ModelResponsePart]) -> bool:
    calls = [part for part in parts if isinstance(part, ai.ToolCallPart)]
    thinks = any(isinstance(part, ai.ThinkingPart) and part.provider_name for part in parts)
    return bool(calls) and (thinks or any(part.provider_details for part in calls))


def _can_hold(part: ai.ModelResponsePart) -> bool:
    return isinstance(part, ai.ToolCallPart) or (
        isinstance(part, ai.TextPart) and bool(part.content.strip())
    )


def _reasoning(part: ai.ModelResponsePart, thinking: Sequence[ai.ThinkingPart]) -> Reasoning | None:
    names = [each.provider_name for each in (*thinking, part) if each.provider_name]
    if not names:
        return None
    data = _Data(list(thinking), getattr(part, "id", None), part.provider_details)
    dumped = _DATA.dump_python(data, mode="json", exclude_defaults=True, fallback=str)
    return Reasoning(provider=names[0], data=dumped)


def _with_reasoning(
    part: ai.TextPart | ai.ToolCallPart, reasoning: Reasoning | None, provider: str
) -> Iterator[ai.ModelResponsePart]:
    if reasoning is None or reasoning.provider != provider:
        yield part
        return
    try:
        data = _DATA.validate_python(reasoning.data)
    except ValidationError:  # a loaded file may have any data
        yield part
        return
    yield from data.thinking
    yield replace(part, id=data.id, provider_name=provider, provider_details=data.details)

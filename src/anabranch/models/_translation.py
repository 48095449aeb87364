"""Translates messages to pydantic-ai's types, and replies back, with the reasoning of models.

Reasoning, which a provider signs, is stored with the block that follows it until its turn ends. Some
providers refuse a tool's result without the reasoning, and only the adapter of the same provider reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_ai import messages as ai

from anabranch._asking import tool_use
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
from anabranch.models._file_parts import ANY, TakenFiles, file_part
from anabranch.models._protocol import ModelError
from anabranch.models._tool_shapes import ToolShapes, shaped
from anabranch.tree import wire_name, with_reasoning_of_open_turn

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

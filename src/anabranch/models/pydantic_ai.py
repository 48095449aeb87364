"""Provider models, through pydantic-ai's ``direct`` interface: one request, one reply.

Owns the translation of messages, tools and settings into pydantic-ai's and back. It never loops,
retries, validates a structured reply or remembers anything; pydantic-ai's ``Agent`` is not used.
Needs the extra ``models``; imported by ``open_model`` alone, because the import costs a second.

A model's thinking is not kept: it is nobody's answer, and no edge can carry it.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic_ai import messages as ai
from pydantic_ai.direct import model_request
from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model, ModelRequestParameters, infer_model
from pydantic_ai.providers import Provider, infer_provider
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from anabranch.messages import (
    AudioBlock,
    Block,
    ImageBlock,
    Message,
    SampleReply,
    SampleRequest,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    Usage,
)
from anabranch.models.errors import ModelError

__all__ = ["ProviderModel", "open_provider_model"]

OLLAMA = "http://localhost:11434/v1"
FORCE = "Answer by calling one of the tools."
STOP_REASONS = {"stop": "endTurn", "length": "maxTokens", "tool_call": "toolUse"}
"""The protocol's words for pydantic-ai's; others, such as ``content_filter``, go through as
they are."""


def open_provider_model(names: Sequence[str]) -> ProviderModel:
    """Return the models called ``names``; the first is the default.

    Raises:
        ModelError: a name is unknown, or the provider is not set up on this machine.
    """
    return ProviderModel(*map(_infer, names))


def _infer(name: str) -> Model[Any]:
    try:
        return infer_model(name, provider_factory=_provider)
    except ValueError as error:
        raise ModelError(f"Unknown model {name!r}: {error}.") from error
    except UserError as error:
        raise ModelError(f"Cannot open model {name!r}: {error}") from error
    except ImportError as error:
        raise ModelError(f"Cannot open model {name!r}: {error}") from error


def _provider(name: str) -> Provider[Any]:
    if name == "ollama" and not os.environ.get("OLLAMA_BASE_URL"):
        from pydantic_ai.providers.ollama import OllamaProvider  # noqa: PLC0415 - needs openai

        return OllamaProvider(base_url=OLLAMA)
    return infer_provider(name)


class ProviderModel:
    """A ``Sampler`` over one or more pydantic-ai models.

    Args:
        model: answers, unless a request prefers another.
        others: may be preferred: a request whose ``model_preferences`` hint at a part of a
            model's name is answered by that model. Hints at unknown models are passed over.
    """

    def __init__(self, model: Model[Any], *others: Model[Any]) -> None:
        self._models = (model, *others)

    async def sample(self, request: SampleRequest) -> SampleReply:
        """Make one request to the provider.

        Raises:
            ModelError: the conversation holds what no provider takes.
            Exception: whatever the provider's client raises.
        """
        model = self._preferred(request)
        if request.tool_choice == "required" and not _can_be_forced(model):
            request = _unforced(request)
        response = await model_request(
            model,
            to_provider(request),
            model_settings=_settings(request),
            model_request_parameters=ModelRequestParameters(
                function_tools=[
                    ToolDefinition(
                        name=tool.name,
                        description=tool.description or None,
                        parameters_json_schema=dict(tool.input_schema),
                    )
                    for tool in request.tools or ()
                ]
            ),
        )
        return from_provider(response, model.model_name)

    def _preferred(self, request: SampleRequest) -> Model[Any]:
        for hint in _hints(request):
            for model in self._models:
                if hint in f"{model.system}:{model.model_name}":
                    return model
        return self._models[0]


def _hints(request: SampleRequest) -> Iterator[str]:
    hints = (request.model_preferences or {}).get("hints")
    for hint in hints if isinstance(hints, list) else ():
        name = hint.get("name") if isinstance(hint, dict) else None
        if isinstance(name, str) and name:
            yield name


def _can_be_forced(model: Model[Any]) -> bool:
    """Whether the model takes a forced tool choice; some of the newest refuse such requests."""
    profile = model.profile
    return profile.get("supports_forced_tool_choice", True) and (
        profile.get("supports_forced_tool_choice_with_thinking", True)
        or not profile.get("thinking_always_enabled", False)
    )


def _unforced(request: SampleRequest) -> SampleRequest:
    """Return the request with words in place of force; whoever asked checks the reply anyway."""
    system = f"{request.system_prompt}\n\n{FORCE}" if request.system_prompt else FORCE
    return request.model_copy(update={"tool_choice": "auto", "system_prompt": system})


def _settings(request: SampleRequest) -> ModelSettings:
    settings = ModelSettings(max_tokens=request.max_tokens)
    if request.tools and request.tool_choice is not None:
        settings["tool_choice"] = request.tool_choice
    return settings


def to_provider(request: SampleRequest) -> list[ai.ModelMessage]:
    """Return the conversation as pydantic-ai has it, the system prompt first.

    Raises:
        ModelError: a tool result without its tool use, or a block in the wrong role's message.
    """
    names: dict[str, str] = {}
    messages: list[ai.ModelMessage] = []
    if request.system_prompt:
        messages.append(ai.ModelRequest(parts=[ai.SystemPromptPart(request.system_prompt)]))
    for message in request.messages:
        if message.role == "assistant":
            parts = [_response_part(block) for block in message.content]
            messages.append(ai.ModelResponse(parts=parts))
            names |= {
                block.id: block.name for block in message.content if isinstance(block, ToolUseBlock)
            }
        else:
            messages.append(ai.ModelRequest(parts=list(_request_parts(message, names))))
    return messages


def _response_part(block: Block) -> ai.ModelResponsePart:
    match block:
        case TextBlock():
            return ai.TextPart(block.text)
        case ToolUseBlock():
            return ai.ToolCallPart(block.name, dict(block.input), block.id)
        case ImageBlock() | AudioBlock():
            return ai.FilePart(_binary(block))
        case ToolResultBlock():
            raise ModelError(
                f"Tool result {block.tool_use_id!r} is in a message of the assistant's."
                " Put it into the user's next message."
            )


def _request_parts(message: Message, names: dict[str, str]) -> Iterator[ai.ModelRequestPart]:
    """Tool results one by one, and what stands between them as one prompt each."""
    prompt: list[ai.UserContent] = []
    for block in message.content:
        match block:
            case TextBlock():
                prompt.append(block.text)
            case ImageBlock() | AudioBlock():
                prompt.append(_binary(block))
            case ToolResultBlock():
                if prompt:
                    yield _prompt(prompt)
                    prompt = []
                yield _tool_return(block, names)
            case ToolUseBlock():
                raise ModelError(
                    f"Tool use {block.id!r} is in a message of the user's."
                    " Put it into a message of the assistant's."
                )
    if prompt or not message.content:
        yield _prompt(prompt)


def _prompt(content: list[ai.UserContent]) -> ai.UserPromptPart:
    match content:
        case [str(text)]:
            return ai.UserPromptPart(text)
        case _:
            return ai.UserPromptPart(content)


def _tool_return(block: ToolResultBlock, names: dict[str, str]) -> ai.ToolReturnPart:
    if block.tool_use_id not in names:
        raise ModelError(
            f"Tool result {block.tool_use_id!r} belongs to no tool use in the conversation."
            " Send the assistant's message with that tool use before it."
        )
    content: list[Any] = [
        part.text if isinstance(part, TextBlock) else _binary(part) for part in block.content
    ]
    return ai.ToolReturnPart(
        tool_name=names[block.tool_use_id],
        content="\n".join(content) if all(isinstance(part, str) for part in content) else content,
        tool_call_id=block.tool_use_id,
        outcome="failed" if block.is_error else "success",
    )


def _binary(block: ImageBlock | AudioBlock) -> ai.BinaryContent:
    return ai.BinaryContent(base64.b64decode(block.data), media_type=block.mime_type)


def from_provider(response: ai.ModelResponse, model: str) -> SampleReply:
    """Return the provider's reply as ours; ``model`` where it does not name itself."""
    content = [block for part in response.parts for block in _blocks(part)]
    reason = response.finish_reason
    if reason is None:
        calls = any(isinstance(block, ToolUseBlock) for block in content)
        stopped = "toolUse" if calls else "endTurn"
    else:
        stopped = STOP_REASONS.get(reason, reason)
    used = Usage(
        input_tokens=response.usage.input_tokens, output_tokens=response.usage.output_tokens
    )
    return SampleReply(
        content=tuple(content) or (TextBlock(text=""),),
        model=response.model_name or model,
        stop_reason=stopped,
        # All zero is how pydantic-ai says that the provider did not tell.
        usage=used if used.total_tokens else None,
    )


def _blocks(part: ai.ModelResponsePart) -> Iterator[Block]:
    match part:
        case ai.TextPart(content=text) if text:
            yield TextBlock(text=text)
        case ai.ToolCallPart():
            yield ToolUseBlock(id=part.tool_call_id, name=part.tool_name, input=part.args_as_dict())
        case ai.FilePart(content=file) if file.is_image:
            yield ImageBlock(data=file.base64, mime_type=file.media_type)
        case ai.FilePart(content=file) if file.is_audio:
            yield AudioBlock(data=file.base64, mime_type=file.media_type)
        case _:  # thinking and the provider's own tools
            return

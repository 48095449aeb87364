"""Messages of a conversation, requests to a model or a person, and their replies.

``model_dump()`` gives this library's own JSON (``tool_use_id``), ``model_dump(by_alias=True)`` that
of the Model Context Protocol (``toolUseId``); both are accepted as input. Everything here is
frozen, so a message can be shared by any number of branches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, TypedDict, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, field_validator
from pydantic.alias_generators import to_camel
from pydantic.main import IncEx

__all__ = [
    "CUT",
    "NOTHING",
    "AudioBlock",
    "Block",
    "DocumentBlock",
    "ElicitReply",
    "ElicitRequest",
    "Exchange",
    "FileBlock",
    "ImageBlock",
    "IncludedContext",
    "LogLevel",
    "Message",
    "MessageLike",
    "Reasoning",
    "ResultBlock",
    "SampleOptions",
    "SampleReply",
    "SampleRequest",
    "Shape",
    "TextBlock",
    "ToolCall",
    "ToolChoiceMode",
    "ToolResultBlock",
    "ToolSpec",
    "ToolUseBlock",
    "UrlRequest",
    "Usage",
    "assistant",
    "text_of",
    "to_messages",
    "unchecked",
    "user",
]

LogLevel: TypeAlias = Literal[
    "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"
]
"""The levels of log messages, as in the Model Context Protocol."""

ToolChoiceMode: TypeAlias = Literal["auto", "required", "none"]
"""Whether a model may, must or must not call one of the tools that it is offered."""

IncludedContext: TypeAlias = Literal["none", "thisServer", "allServers"]
"""Which MCP servers' context a client is asked to add to a model request."""

NOTHING = "(nothing)"
"""The text of a message without content, which no provider would accept."""


CUT = (
    "Your reply was cut inside this tool call, at the limit of tokens for one reply, so the tool was"
    " not run. Call it again with shorter arguments, or in several calls."
)
"""The result of a tool use whose input may be incomplete."""


class Shape(BaseModel):
    """The base of all shapes here: a frozen model, snake_case here and camelCase in MCP."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        frozen=True, alias_generator=to_camel, populate_by_name=True
    )
    _unwired: ClassVar[IncEx | None] = None
    """The fields for which the Model Context Protocol has no place."""

    def wire(self) -> dict[str, Any]:
        """Return the JSON of the Model Context Protocol, without the fields that are ``None``."""
        return self.model_dump(by_alias=True, exclude_none=True, mode="json", exclude=self._unwired)


_S = TypeVar("_S", bound=Shape)
_set = object.__setattr__


def unchecked(shape: type[_S], /, **fields: object) -> _S:
    """Return ``shape(**fields)`` without validating ``fields``.

    For paths of thousands of messages whose blocks have been validated before: to validate them
    again would take longer than everything else.

    Args:
        shape: a class without private attributes.
        fields: all its fields, each as validation would return it.
    """
    made = shape.__new__(shape)
    _set(made, "__dict__", fields)  # with the three below, the whole state of a pydantic model
    _set(made, "__pydantic_fields_set__", set(fields))
    _set(made, "__pydantic_extra__", None)
    _set(made, "__pydantic_private__", None)
    return made


class Reasoning(Shape):
    """A model's reasoning before a block of its reply, which the provider wants back with the block.

    Attributes:
        provider: the only provider to which it is sent.
        data: the thinking with its signature, as the provider's adapter reads it. Opaque.
    """

    provider: str
    data: dict[str, JsonValue]


def _is_none(value: object) -> bool:
    return value is None


class TextBlock(Shape):
    """Text.

    Attributes:
        type: names the kind of block.
        text: the text.
        mark: what an agent says by it in a tool's result, stored with it: that there is none
            (``no_result``), or how much of a budget is used (``budget``). No tool can set it.
        reasoning: what the model thought before it, in a reply that calls tools.
    """

    type: Literal["text"] = "text"
    text: str
    mark: Literal["no_result", "budget"] | None = Field(default=None, exclude_if=_is_none)
    reasoning: Reasoning | None = Field(default=None, exclude_if=_is_none)


class ImageBlock(Shape):
    """An image; ``data`` is base64."""

    type: Literal["image"] = "image"
    data: str
    mime_type: str


class AudioBlock(Shape):
    """Sound; ``data`` is base64."""

    type: Literal["audio"] = "audio"
    data: str
    mime_type: str


class DocumentBlock(Shape):
    """A document, such as a PDF; ``data`` is base64."""

    type: Literal["document"] = "document"
    data: str
    mime_type: str
    name: str = Field(default="", exclude_if=lambda name: not name)


class FileBlock(Shape):
    """A reference to a file: to its bytes in the store of the conversation, or to an address.

    Attributes:
        type: names the kind of block.
        mime_type: type of the file; ``image/*`` and the like for an address without a known type.
        digest: SHA-256 of the stored bytes, in hexadecimal; ``None`` for an address.
        url: address of a file that is not stored.
        size: number of stored bytes.
        name: name of the file, for people and models.
    """

    type: Literal["file"] = "file"
    mime_type: str
    digest: str | None = Field(default=None, pattern="^[0-9a-f]{64}$", exclude_if=_is_none)
    url: str | None = Field(default=None, exclude_if=_is_none)
    size: int = Field(default=0, ge=0, exclude_if=lambda size: not size)
    name: str = Field(default="", exclude_if=lambda name: not name)

    @property
    def kind(self) -> Literal["image", "audio", "document"]:
        """The kind of block that has the bytes of such a file."""
        kind = self.mime_type.partition("/")[0]
        return "image" if kind == "image" else "audio" if kind == "audio" else "document"


class ToolUseBlock(Shape):
    """A call of a tool, as the model asks for it.

    ``malformed`` is the text of arguments that are no JSON object: ``input`` is empty then, and the
    tool is not run. ``reasoning`` is what the model thought before the call. The JSON has either
    only where there is one.
    """

    type: Literal["tool_use"] = "tool_use"
    id: str
    name: str
    input: dict[str, JsonValue]
    malformed: str | None = Field(default=None, exclude_if=_is_none)
    reasoning: Reasoning | None = Field(default=None, exclude_if=_is_none)


ResultBlock: TypeAlias = Annotated[
    TextBlock | ImageBlock | AudioBlock | DocumentBlock | FileBlock, Field(discriminator="type")
]
"""One part of what a tool returned."""


class ToolResultBlock(Shape):
    """What a tool returned for the ``tool_use`` block with the id ``tool_use_id``."""

    type: Literal["tool_result"] = "tool_result"
    tool_use_id: str
    content: tuple[ResultBlock, ...] = ()
    is_error: bool = False

    @field_validator("content", mode="before")
    @classmethod
    def _text_is_a_block(cls, value: object) -> object:
        return ({"type": "text", "text": value},) if isinstance(value, str) else value


Block: TypeAlias = Annotated[
    TextBlock
    | ImageBlock
    | AudioBlock
    | DocumentBlock
    | FileBlock
    | ToolUseBlock
    | ToolResultBlock,
    Field(discriminator="type"),
]
"""One part of a message's content."""


def _as_blocks(value: object) -> object:
    """Return a list for a text or a single block: providers and MCP allow all three."""
    if isinstance(value, str):
        return (TextBlock(text=value),)
    if isinstance(value, Mapping | Shape):
        return (cast("object", value),)
    return value


_CONTENT_UNWIRED: IncEx = {"content": {"__all__": {"reasoning"}}}


class Message(Shape):
    """One message of a conversation; ``content`` may be given as a text."""

    _unwired: ClassVar[IncEx | None] = _CONTENT_UNWIRED

    role: Literal["user", "assistant"]
    content: tuple[Block, ...]

    _blocks = field_validator("content", mode="before")(_as_blocks)

    @property
    def text(self) -> str:
        """The text of all text blocks, joined."""
        return text_of(self.content)


MessageLike: TypeAlias = Message | Mapping[str, Any]
"""A message, or its JSON."""

_MESSAGES: TypeAdapter[tuple[Message, ...]] = TypeAdapter(tuple[Message, ...])


def user(content: str | Iterable[Block]) -> Message:
    """Return a message in the role of the user."""
    return Message.model_validate({"role": "user", "content": content})


def assistant(content: str | Iterable[Block]) -> Message:
    """Return a message in the role of the assistant, the model."""
    return Message.model_validate({"role": "assistant", "content": content})


def to_messages(messages: Iterable[MessageLike]) -> tuple[Message, ...]:
    """Return the messages, those given as JSON validated.

    Raises:
        pydantic.ValidationError: one of them is not a message.
    """
    given = tuple(messages)
    return _MESSAGES.validate_python(given) if given else ()


def text_of(blocks: Iterable[Block]) -> str:
    """Return the text of all text blocks, joined."""
    return "".join(block.text for block in blocks if isinstance(block, TextBlock))


class Exchange(tuple[Message, ...]):
    """A question and its answer as messages, to be appended to a conversation."""

    def with_arguments(self, arguments: dict[str, Any]) -> Exchange:
        """Return the exchange with ``arguments`` as the input of its tool use.

        The input is empty otherwise: what was asked enters a conversation only on purpose.
        """

        def filled(message: Message) -> Message:
            content = tuple(
                block.model_copy(update={"input": arguments})
                if isinstance(block, ToolUseBlock)
                else block
                for block in message.content
            )
            return message.model_copy(update={"content": content})

        return Exchange(filled(message) for message in self)


def _is_zero(tokens: int) -> bool:
    return tokens == 0


class Usage(Shape):
    """The tokens of one model request, as its provider reported them.

    ``input_tokens`` include those that were read from the provider's prompt cache, and those that
    were written to it. The JSON has these two counts only where they are not zero.
    """

    input_tokens: int = Field(default=0, ge=0)
    output_tokens: int = Field(default=0, ge=0)
    cache_read_tokens: int = Field(default=0, ge=0, exclude_if=_is_zero)
    cache_write_tokens: int = Field(default=0, ge=0, exclude_if=_is_zero)

    @property
    def total_tokens(self) -> int:
        """The sum of input and output tokens."""
        return self.input_tokens + self.output_tokens


class ToolSpec(Shape):
    """The description of a tool that a model is given."""

    name: str
    description: str = ""
    input_schema: dict[str, JsonValue]


class ToolCall(Shape):
    """A call of a tool that a model's reply asks for; ``malformed`` as in a ``ToolUseBlock``."""

    id: str
    name: str
    arguments: dict[str, JsonValue]
    malformed: str | None = Field(default=None, exclude_if=_is_none)


class SampleRequest(Shape):
    """A request to a model (MCP ``sampling/createMessage``).

    ``metadata`` is for the model's provider, in the provider's own format.
    """

    _unwired: ClassVar[IncEx | None] = {"messages": {"__all__": _CONTENT_UNWIRED}}

    messages: tuple[Message, ...]
    max_tokens: int
    system_prompt: str | None = None
    tools: tuple[ToolSpec, ...] | None = None
    tool_choice: ToolChoiceMode | None = None
    model_preferences: dict[str, JsonValue] | None = None
    temperature: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    stop_sequences: tuple[Annotated[str, Field(min_length=1)], ...] | None = None
    include_context: IncludedContext | None = None
    metadata: dict[str, JsonValue] | None = None


class SampleOptions(TypedDict, total=False):
    """What can be said of a model request besides its messages and tools."""

    system_prompt: str | None
    max_tokens: int | None
    model_preferences: Mapping[str, Any] | None
    temperature: float | None
    stop_sequences: Iterable[str] | None
    include_context: IncludedContext | None
    metadata: Mapping[str, Any] | None


class SampleReply(Shape):
    """A model's reply (MCP ``CreateMessageResult``). ``usage`` is absent over MCP."""

    _unwired: ClassVar[IncEx | None] = _CONTENT_UNWIRED

    role: Literal["user", "assistant"] = "assistant"
    content: tuple[Block, ...]
    model: str = ""
    stop_reason: str | None = None
    usage: Usage | None = None

    _blocks = field_validator("content", mode="before")(_as_blocks)

    @property
    def text(self) -> str:
        """The text of all text blocks, joined."""
        return text_of(self.content)

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls that the reply asks for, in its order."""
        return tuple(
            ToolCall(id=block.id, name=block.name, arguments=block.input, malformed=block.malformed)
            for block in self.content
            if isinstance(block, ToolUseBlock)
        )


class ElicitRequest(Shape):
    """A request to a person to fill in a form (MCP ``elicitation/create``, mode ``form``).

    ``context`` is data for the client that shows the form, ``key`` that of a declared elicitation;
    neither is part of the protocol's own parameters.
    """

    message: str
    requested_schema: dict[str, Any]
    context: JsonValue = None
    key: str | None = None


class UrlRequest(Shape):
    """A request to a person to visit ``url`` (MCP ``elicitation/create``, mode ``url``)."""

    message: str
    url: str
    elicitation_id: str


class ElicitReply(Shape):
    """A person's reply to a question. To accept a URL is consent, not completion."""

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, JsonValue] | None = None

"""Data classes of messages, of requests to a model or a user, and of their replies.

``model_dump()`` returns this library's JSON (``tool_use_id``), ``model_dump(by_alias=True)`` the
JSON of the Model Context Protocol (``toolUseId``); both are accepted as input. All classes here are
frozen, so any number of branches can share a message.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, TypedDict, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, field_validator
from pydantic.alias_generators import to_camel
from pydantic.main import IncEx

__all__ = [
    "AudioBlock",
    "Block",
    "DocumentBlock",
    "ElicitReply",
    "ElicitRequest",
    "Exchange",
    "FileBlock",
    "ImageBlock",
    "LogLevel",
    "Message",
    "MessageLike",
    "Reasoning",
    "SampleOptions",
    "SampleReply",
    "SampleRequest",
    "TextBlock",
    "ToolCall",
    "ToolResultBlock",
    "ToolSpec",
    "ToolUseBlock",
    "UrlRequest",
    "Usage",
    "assistant",
    "user",
]

LogLevel: TypeAlias = Literal[
    "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"
]
"""The levels of log messages, as in the Model Context Protocol."""

ToolChoiceMode: TypeAlias = Literal["auto", "required", "none"]
"""Whether a model may, must or must not call one of the offered tools."""

IncludedContext: TypeAlias = Literal["none", "thisServer", "allServers"]
"""The MCP servers whose context a client may add to a model request."""

NOTHING = "(nothing)"
"""The text of a message without content, since providers refuse an empty message."""


CUT = (
    "Your reply was cut inside this tool call, at the limit of tokens for one reply, so the tool was"
    " not run. Call it again with shorter arguments, or in several calls."
)
"""The result of a tool use whose input may be incomplete."""


class Shape(BaseModel):
    """The base of the models in this module: frozen, snake_case in Python and camelCase in MCP."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        frozen=True, alias_generator=to_camel, populate_by_name=True
    )
    _unwired: ClassVar[IncEx | None] = None
    """The fields that the Model Context Protocol does not define."""

    def wire(self) -> dict[str, Any]:
        """Return the JSON of the Model Context Protocol, without the fields that are ``None``."""
        return self.model_dump(by_alias=True, exclude_none=True, mode="json", exclude=self._unwired)


_S = TypeVar("_S", bound=Shape)
_set = object.__setattr__


def unchecked(shape: type[_S], /, **fields: object) -> _S:
    """Return ``shape(**fields)`` without validating ``fields``, each as validation would return it.

    Paths of thousands of messages with valid blocks use this function: to validate them again would
    take longer than everything else. ``shape`` has no private attributes.
    """
    made = shape.__new__(shape)
    _set(made, "__dict__", fields)  # with the three below, the whole state of a pydantic model
    _set(made, "__pydantic_fields_set__", set(fields))
    _set(made, "__pydantic_extra__", None)
    _set(made, "__pydantic_private__", None)
    return made


class Reasoning(Shape):
    """A model's reasoning before a block of its reply, which the provider needs in later requests.

    Attributes:
        provider: the only provider that receives the reasoning.
        data: the signed reasoning in the provider's format.
    """

    provider: str
    data: dict[str, JsonValue]


def _is_none(value: object) -> bool:
    return value is None


class TextBlock(Shape):
    """A text in a message.

    Attributes:
        type: the kind of block.
        text: the text.
        mark: marks a text that an agent, and no tool, added to a tool's result: the tool gave no
            result (``no_result``), or a budget's usage (``budget``).
        reasoning: the model's thinking before the text, in a reply that calls tools.
    """

    type: Literal["text"] = "text"
    text: str
    mark: Literal["no_result", "budget"] | None = Field(default=None, exclude_if=_is_none)
    reasoning: Reasoning | None = Field(default=None, exclude_if=_is_none)


class ImageBlock(Shape):
    """An image; ``data`` is Base64."""

    type: Literal["image"] = "image"
    data: str
    mime_type: str


class AudioBlock(Shape):
    """An audio recording; ``data`` is Base64."""

    type: Literal["audio"] = "audio"
    data: str
    mime_type: str


class DocumentBlock(Shape):
    """A document, such as a PDF; ``data`` is Base64."""

    type: Literal["document"] = "document"
    data: str
    mime_type: str
    name: str = Field(default="", exclude_if=lambda name: not name)


class FileBlock(Shape):
    """A reference to a file, which is stored with the conversation or has a URL.

    Attributes:
        type: the kind of block.
        mime_type: the MIME type of the file; ``image/*`` or similar if the type behind a URL is
            unknown.
        digest: SHA-256 of the stored bytes, in hexadecimal; ``None`` for a URL.
        url: the URL of a file that is not stored.
        size: the number of stored bytes.
        name: the name of the file, for users and models.
    """

    type: Literal["file"] = "file"
    mime_type: str
    digest: str | None = Field(default=None, pattern="^[0-9a-f]{64}$", exclude_if=_is_none)
    url: str | None = Field(default=None, exclude_if=_is_none)
    size: int = Field(default=0, ge=0, exclude_if=lambda size: not size)
    name: str = Field(default="", exclude_if=lambda name: not name)

    @property
    def kind(self) -> Literal["image", "audio", "document"]:
        """The kind of file, which decides the kind of block for the model."""
        kind = self.mime_type.partition("/")[0]
        return "image" if kind == "image" else "audio" if kind == "audio" else "document"


class ToolUseBlock(Shape):
    """A tool call in a model's reply.

    ``malformed`` is the text of arguments that are not a JSON object: ``input`` is then empty, and
    the tool is not run. ``reasoning`` is the model's thinking before the call. The JSON omits both
    fields while they are unset.
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
"""One part of a tool's result."""


class ToolResultBlock(Shape):
    """The result of a tool for the ``tool_use`` block with the id ``tool_use_id``."""

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
"""A part of a message's content, such as a text, an image or a tool call."""


def _as_blocks(value: object) -> object:
    """Return a list for a text or a single block; providers and MCP allow all three forms."""
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
    """Return a message with the role ``user``."""
    return Message.model_validate({"role": "user", "content": content})


def assistant(content: str | Iterable[Block]) -> Message:
    """Return a message with the role ``assistant``, the model."""
    return Message.model_validate({"role": "assistant", "content": content})


def to_messages(messages: Iterable[MessageLike]) -> tuple[Message, ...]:
    given = tuple(messages)
    return _MESSAGES.validate_python(given) if given else ()


def text_of(blocks: Iterable[Block]) -> str:
    return "".join(block.text for block in blocks if isinstance(block, TextBlock))


class Exchange(tuple[Message, ...]):
    """A question and its answer as messages, for ``ctx.append``."""

    def with_arguments(self, arguments: dict[str, Any]) -> Exchange:
        """Return the exchange with ``arguments`` as the input of its tool call.

        By default, the input is empty, so that the conversation does not contain the question.
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

    ``input_tokens`` include tokens read from the provider's prompt cache, and tokens written to it.
    The JSON omits a count of cached tokens that is zero.
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
    """The description of a tool for a model: name, description and parameters."""

    name: str
    description: str = ""
    input_schema: dict[str, JsonValue]


class ToolCall(Shape):
    """A tool call in a model's reply, as ``SampleResult.tool_calls`` lists it."""

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
    """Options of a sample, such as ``max_tokens`` and ``temperature``."""

    system_prompt: str | None
    max_tokens: int | None
    model_preferences: Mapping[str, Any] | None
    temperature: float | None
    stop_sequences: Iterable[str] | None
    include_context: IncludedContext | None
    metadata: Mapping[str, Any] | None


class SampleReply(Shape):
    """A model's reply (MCP ``CreateMessageResult``); MCP carries no ``usage``."""

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
        """The tool calls of the reply, in order."""
        return tuple(
            ToolCall(id=block.id, name=block.name, arguments=block.input, malformed=block.malformed)
            for block in self.content
            if isinstance(block, ToolUseBlock)
        )


class ElicitRequest(Shape):
    """A form for a user to fill in (MCP ``elicitation/create``, mode ``form``).

    ``context`` is JSON for a client that draws the form itself. ``key`` is the key of a declared
    elicitation. Both are extensions of MCP.
    """

    message: str
    requested_schema: dict[str, Any]
    context: JsonValue = None
    key: str | None = None


class UrlRequest(Shape):
    """A request to a user to visit ``url`` (MCP ``elicitation/create``, mode ``url``)."""

    message: str
    url: str
    elicitation_id: str


class ElicitReply(Shape):
    """A user's reply to a form or URL; an accepted URL may not have been opened yet."""

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, JsonValue] | None = None

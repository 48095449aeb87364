"""The words that cross: messages, what is asked of a model or a person, and what comes back.

Owns the shapes and their JSON. ``model_dump()`` is this library's own form (``tool_use_id``),
``model_dump(by_alias=True)`` the form of the Model Context Protocol (``toolUseId``); both are
accepted on the way in. Everything here is frozen: a message can be shared by any number of
branches. Asking, waiting and validating answers against a schema are not done here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, field_validator
from pydantic.alias_generators import to_camel

__all__ = [
    "NOTHING",
    "AudioBlock",
    "Block",
    "ElicitReply",
    "ElicitRequest",
    "Exchange",
    "ImageBlock",
    "LogLevel",
    "Message",
    "MessageLike",
    "SampleReply",
    "SampleRequest",
    "TextBlock",
    "ToolCall",
    "ToolChoice",
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
ToolChoice: TypeAlias = Literal["auto", "required", "none"]

NOTHING = "(nothing)"
"""Stands for a message without content where a provider is told of it, for it would refuse none."""


class Shape(BaseModel):
    """A frozen value with two spellings, snake_case here and camelCase on the wire."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        frozen=True, alias_generator=to_camel, populate_by_name=True
    )

    def wire(self) -> dict[str, Any]:
        """Return the protocol's JSON, absent fields left out."""
        return self.model_dump(by_alias=True, exclude_none=True, mode="json")


_S = TypeVar("_S", bound=Shape)
_set = object.__setattr__


def unchecked(shape: type[_S], /, **fields: object) -> _S:
    """Return what ``shape(**fields)`` would, without a look at ``fields``.

    For a path of thousands of messages, made of blocks that were valid before: looking again takes
    longer than all else.

    Args:
        shape: what is made; a class without private attributes.
        fields: all of its fields, each as validation would leave it.
    """
    made = shape.__new__(shape)
    _set(made, "__dict__", fields)  # all that pydantic has in a model, and what freezes it
    _set(made, "__pydantic_fields_set__", set(fields))
    _set(made, "__pydantic_extra__", None)
    _set(made, "__pydantic_private__", None)
    return made


class TextBlock(Shape):
    """Text."""

    type: Literal["text"] = "text"
    text: str


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


class ToolUseBlock(Shape):
    """The model's wish to call a tool."""

    type: Literal["tool_use"] = "tool_use"
    id: str
    name: str
    input: dict[str, JsonValue]


class ToolResultBlock(Shape):
    """What a tool returned; belongs to the ``tool_use`` block of the same id."""

    type: Literal["tool_result"] = "tool_result"
    tool_use_id: str
    content: tuple[TextBlock | ImageBlock | AudioBlock, ...] = ()
    is_error: bool = False

    @field_validator("content", mode="before")
    @classmethod
    def _text_is_a_block(cls, value: object) -> object:
        return ({"type": "text", "text": value},) if isinstance(value, str) else value


Block: TypeAlias = Annotated[
    TextBlock | ImageBlock | AudioBlock | ToolUseBlock | ToolResultBlock,
    Field(discriminator="type"),
]


def _as_blocks(value: object) -> object:
    """A text, or one block, where a list of blocks is due: providers and MCP allow all three."""
    if isinstance(value, str):
        return (TextBlock(text=value),)
    if isinstance(value, Mapping | Shape):
        return (cast("object", value),)
    return value


class Message(Shape):
    """One turn of a conversation. ``content`` may be given as a text."""

    role: Literal["user", "assistant"]
    content: tuple[Block, ...]

    _blocks = field_validator("content", mode="before")(_as_blocks)

    @property
    def text(self) -> str:
        """All text blocks, joined."""
        return text_of(self.content)


MessageLike: TypeAlias = Message | Mapping[str, Any]
_MESSAGES: TypeAdapter[tuple[Message, ...]] = TypeAdapter(tuple[Message, ...])


def user(content: str | Iterable[Block]) -> Message:
    """Return a message of the user's."""
    return Message.model_validate({"role": "user", "content": content})


def assistant(content: str | Iterable[Block]) -> Message:
    """Return a message of the model's."""
    return Message.model_validate({"role": "assistant", "content": content})


def to_messages(messages: Iterable[MessageLike]) -> tuple[Message, ...]:
    """Return messages for messages or their JSON.

    Raises:
        pydantic.ValidationError: one of them is not a message.
    """
    given = tuple(messages)
    return _MESSAGES.validate_python(given) if given else ()


def text_of(blocks: Iterable[Block]) -> str:
    """Return the text of all text blocks, joined."""
    return "".join(block.text for block in blocks if isinstance(block, TextBlock))


class Exchange(tuple[Message, ...]):
    """A question and its answer as messages, ready to be appended to a conversation."""

    def with_arguments(self, arguments: dict[str, Any]) -> Exchange:
        """Return the exchange with ``arguments`` as the input of its tool use.

        Without this the input is empty, so that nothing leaks into a conversation unasked.
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
    """Tokens of one model request, as its provider reported them.

    ``input_tokens`` are all of them: those that its cache of prompts was read for, and those that
    were written to it, are among them. Nothing cached is not told.
    """

    input_tokens: int = Field(default=0, ge=0)
    output_tokens: int = Field(default=0, ge=0)
    cache_read_tokens: int = Field(default=0, ge=0, exclude_if=_is_zero)
    cache_write_tokens: int = Field(default=0, ge=0, exclude_if=_is_zero)

    @property
    def total_tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens


class ToolSpec(Shape):
    """A tool as a model is told of it."""

    name: str
    description: str = ""
    input_schema: dict[str, JsonValue]


class ToolCall(Shape):
    """The model's wish to call a tool, as an author meets it."""

    id: str
    name: str
    arguments: dict[str, JsonValue]


class SampleRequest(Shape):
    """What a model is asked (MCP ``sampling/createMessage``)."""

    messages: tuple[Message, ...]
    max_tokens: int
    system_prompt: str | None = None
    tools: tuple[ToolSpec, ...] | None = None
    tool_choice: ToolChoice | None = None
    model_preferences: dict[str, JsonValue] | None = None


class SampleReply(Shape):
    """What a model answered (MCP ``CreateMessageResult``). ``usage`` is absent over MCP."""

    role: Literal["user", "assistant"] = "assistant"
    content: tuple[Block, ...]
    model: str = ""
    stop_reason: str | None = None
    usage: Usage | None = None

    _blocks = field_validator("content", mode="before")(_as_blocks)

    @property
    def text(self) -> str:
        """All text blocks, joined."""
        return text_of(self.content)

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tools that the model wants called, in its order."""
        return tuple(
            ToolCall(id=block.id, name=block.name, arguments=block.input)
            for block in self.content
            if isinstance(block, ToolUseBlock)
        )


class ElicitRequest(Shape):
    """What a person is asked in a form (MCP ``elicitation/create``, mode ``form``).

    ``context`` is data for whoever draws the form, ``key`` the declared elicitation's; neither
    is part of the protocol's own parameters.
    """

    message: str
    requested_schema: dict[str, JsonValue]
    context: JsonValue = None
    key: str | None = None


class UrlRequest(Shape):
    """What a person is asked to do at ``url`` (MCP ``elicitation/create``, mode ``url``)."""

    message: str
    url: str
    elicitation_id: str


class ElicitReply(Shape):
    """What a person did with a question. Accepting a URL is consent, not completion."""

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, JsonValue] | None = None

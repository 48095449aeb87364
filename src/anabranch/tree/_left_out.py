"""Removes blocks from requests that a provider does not read: old reasoning, refused blocks.

A provider reads reasoning only while the model waits for the results of its tools; later, it costs
tokens. A provider that refuses one image refuses every request with that image. A reply stores the places of refused blocks, so that later requests leave them out as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from pydantic import TypeAdapter, ValidationError

from anabranch.messages import (
    AudioBlock,
    Block,
    DocumentBlock,
    FileBlock,
    ImageBlock,
    Message,
    ResultBlock,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from anabranch.tree._threads import Node

LEFT_OUT = "left_out"
"""The places of refused blocks, in the data of the first reply without them."""

Place: TypeAlias = tuple[int, ...]
"""The numbers of a message, of its block, and of the block's part: 0 for its reasoning."""

_NAMES = {"image": "an image", "audio": "a sound", "document": "a document"}
_PLACES: TypeAdapter[tuple[Place, ...]] = TypeAdapter(tuple[Place, ...])


def left_out_on(path: Iterable[Node]) -> frozenset[Place]:
    places: set[Place] = set()
    for node in path:
        if node.kind == "assistant" and LEFT_OUT in node.data:
            with suppress(ValidationError):  # a loaded file may have any data
                places.update(_PLACES.validate_python(node.data[LEFT_OUT]))
    return frozenset(places)


def media_places(messages: Sequence[Message]) -> list[Place]:
    return _places_of(messages, (ImageBlock, AudioBlock, DocumentBlock, FileBlock))


def text_places(messages: Sequence[Message]) -> list[Place]:
    """Return the places of texts, also in results, but not of the user's newest message."""
    places = _places_of(messages, (TextBlock,))
    return places[:-1] if places and len(places[-1]) == 2 else places  # noqa: PLR2004 - its own


def _places_of(messages: Sequence[Message], kinds: tuple[type[Block], ...]) -> list[Place]:
    places: list[Place] = []
    for number, message in enumerate(messages):
        for at, block in enumerate(message.content):
            if isinstance(block, ToolResultBlock):
                inner = enumerate(block.content)
                places += [(number, at, n) for n, part in inner if isinstance(part, kinds)]
            elif isinstance(block, kinds):
                places.append((number, at))
    return places


def reasoning_places(messages: Sequence[Message]) -> list[Place]:
    return [
        (number, at, 0)
        for number, message in enumerate(with_reasoning_of_open_turn(messages))
        for at, block in enumerate(message.content)
        if isinstance(block, TextBlock | ToolUseBlock) and block.reasoning is not None
    ]


def without(messages: Sequence[Message], places: Iterable[Place]) -> tuple[Message, ...]:
    """Return ``messages`` with lines in place of the blocks at ``places``, and without reasoning there."""
    wanted = frozenset(places)
    if not wanted:
        return tuple(messages)
    changed = {place[0] for place in wanted if place}
    return tuple(
        _replaced(message, number, wanted) if number in changed else message
        for number, message in enumerate(messages)
    )


def _replaced(message: Message, number: int, places: frozenset[Place]) -> Message:
    content: list[Block] = []
    for at, block in enumerate(message.content):
        if isinstance(block, ToolResultBlock):
            parts = [
                _line(part) if (number, at, n) in places else part
                for n, part in enumerate(block.content)
            ]
            content.append(block.model_copy(update={"content": tuple(parts)}))
        else:
            kept = without_reasoning(block) if (number, at, 0) in places else block
            content.append(_line(kept) if (number, at) in places else kept)
    return message.model_copy(update={"content": tuple(content)})


def _line(block: Block | ResultBlock) -> Any:  # noqa: ANN401 - of the kind that is given
    match block:
        case ImageBlock() | AudioBlock() | DocumentBlock() | FileBlock():
            what = _NAMES[block.kind if isinstance(block, FileBlock) else block.type]
            return TextBlock(text=f"({what} that the model's provider refused: {block.mime_type})")
        case TextBlock():
            return TextBlock(text="(a text that the model's provider refused)")
        case _:
            return block


def with_reasoning_of_open_turn(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return ``messages`` without the reasoning before the user's last message, which has ended."""
    begins = next((at for at in range(len(messages) - 1, -1, -1) if _begins_turn(messages[at])), 0)
    ended = (_without(message) for message in messages[:begins])
    return (*ended, *messages[begins:])


def _begins_turn(message: Message) -> bool:
    return message.role == "user" and not any(
        isinstance(block, ToolResultBlock) for block in message.content
    )


def _without(message: Message) -> Message:
    if message.role == "user" or all(
        block is without_reasoning(block) for block in message.content
    ):
        return message
    content = tuple(map(without_reasoning, message.content))
    return message.model_copy(update={"content": content})


def without_reasoning(block: Block) -> Block:
    if isinstance(block, TextBlock | ToolUseBlock) and block.reasoning is not None:
        return block.model_copy(update={"reasoning": None})
    return block

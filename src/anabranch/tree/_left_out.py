"""Leaves out of a conversation the blocks and the reasoning that a provider has refused.

A provider that refuses one image refuses every request with that image. The reply that came without
the block stores the place of the block in its data. So requests below that reply leave the block
out as well.
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
from anabranch.tree._nodes import Node
from anabranch.tree._open_turn import with_reasoning_of_open_turn, without_reasoning

LEFT_OUT = "left_out"
"""The places of refused blocks, in the data of the first reply without them."""

Place: TypeAlias = tuple[int, ...]
"""The numbers of a message, of its block, and of a part of the block.

The part is a block in a result, or 0 for the reasoning of a text or tool use.
"""

_NAMES = {"image": "an image", "audio": "a sound", "document": "a document"}
_PLACES: TypeAdapter[tuple[Place, ...]] = TypeAdapter(tuple[Place, ...])


def left_out_on(path: Iterable[Node]) -> frozenset[Place]:
    """Return the places of the blocks that the replies on ``path`` came without."""
    places: set[Place] = set()
    for node in path:
        if node.kind == "assistant" and LEFT_OUT in node.data:
            with suppress(ValidationError):  # a loaded file may have any data
                places.update(_PLACES.validate_python(node.data[LEFT_OUT]))
    return frozenset(places)


def media_places(messages: Sequence[Message]) -> list[Place]:
    """Return the places of all images, sounds and other files, in order."""
    places: list[Place] = []
    for number, message in enumerate(messages):
        for at, block in enumerate(message.content):
            if isinstance(block, ImageBlock | AudioBlock | DocumentBlock | FileBlock):
                places.append((number, at))
            elif isinstance(block, ToolResultBlock):
                inner = enumerate(block.content)
                places += [(number, at, n) for n, b in inner if not isinstance(b, TextBlock)]
    return places


def text_places(messages: Sequence[Message]) -> list[Place]:
    """Return the places of the texts before the newest message of the user, in order.

    They include texts in results of tools, also those in the newest message.
    """
    places: list[Place] = []
    for number, message in enumerate(messages):
        for at, block in enumerate(message.content):
            if isinstance(block, TextBlock):
                places.append((number, at))
            elif isinstance(block, ToolResultBlock):
                inner = enumerate(block.content)
                places += [(number, at, n) for n, b in inner if isinstance(b, TextBlock)]
    return places[:-1] if places and len(places[-1]) == 2 else places  # noqa: PLR2004 - its own


def reasoning_places(messages: Sequence[Message]) -> list[Place]:
    """Return the places of the reasoning that a provider is sent, in order."""
    return [
        (number, at, 0)
        for number, message in enumerate(with_reasoning_of_open_turn(messages))
        for at, block in enumerate(message.content)
        if isinstance(block, TextBlock | ToolUseBlock) and block.reasoning is not None
    ]


def without(messages: Sequence[Message], places: Iterable[Place]) -> tuple[Message, ...]:
    """Return ``messages`` with a line of text in place of each image, sound, file or text at ``places``.

    Reasoning at ``places`` is left out without a line.
    """
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

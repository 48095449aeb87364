"""Finds the block of a conversation that a provider's refusal names.

A provider numbers the items of its request: its list of messages, and the blocks in each. That list
is the adapter's, not ours. So this module looks the item up in the request, and then finds the
block with the same content.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, cast

from anabranch.messages import (
    AudioBlock,
    Block,
    ImageBlock,
    Message,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)

_PATH: Final = re.compile(r"\b(?:messages|input)(?:\.?\[?\d+\]?|\.[a-z_]\w*)+")
"""``messages.1.content.0.image`` (Anthropic), ``input[1].content[0]``, ``messages.[1].content`` (OpenAI)."""
_STEP: Final = re.compile(r"\w+")


def refused_place(
    error: BaseException, said: Sequence[str], messages: Sequence[Message]
) -> tuple[int, ...] | None:
    """Return the place in ``messages`` that an error of a provider's client names, or ``None``.

    Args:
        error: the client's error, which has the request.
        said: the provider's texts that may name an item of the request.
        messages: the conversation.
    """
    body = _body(error)
    for path in (found[0] for text in said for found in _PATH.finditer(text)):
        for item in reversed(_items(body, _STEP.findall(path))):
            if places := _places(item, messages):
                return places[-1]
    return None


def _body(error: BaseException) -> object:
    """Return the JSON of the request, or ``None`` if the client does not give it."""
    try:
        content = getattr(getattr(error, "request", None), "content", b"")
        return json.loads(content) if isinstance(content, bytes) else None
    except (RuntimeError, ValueError):  # a stream that was not read, or no JSON
        return None


def _items(body: object, steps: Sequence[str]) -> list[object]:
    """Return the members of lists along ``steps``, the innermost last."""
    items: list[object] = []
    found = body
    for step in steps:
        fields = cast("Mapping[str, object]", found if isinstance(found, dict) else {})
        members = cast("Sequence[object]", found if isinstance(found, list) else ())
        if step.isdecimal() and int(step) < len(members):
            found = members[int(step)]
            items.append(found)
        elif step in fields:
            found = fields[step]
        elif fields.get("type") != step:
            break  # Anthropic names the type of a block as well
    return items


def _places(item: object, messages: Sequence[Message]) -> list[tuple[int, ...]]:
    """Return the places of the item's images, else of its reasoning, else of its texts."""
    texts = [*_texts(item)]
    whole, joined = set(texts), "\n".join(texts)
    media: list[tuple[int, ...]] = []
    reasoning: list[tuple[int, ...]] = []
    said: list[tuple[int, ...]] = []
    for place, block in _blocks(messages):
        if isinstance(block, ImageBlock | AudioBlock):
            media += [place] if block.data in joined else []
        elif isinstance(block, TextBlock | ToolUseBlock):
            signed = [] if block.reasoning is None else [*_texts(block.reasoning.data)]
            reasoning += [(*place, 0)] if not whole.isdisjoint(signed) else []
            said += [place] if isinstance(block, TextBlock) and block.text in whole else []
    return media or reasoning or said


def _blocks(messages: Sequence[Message]) -> Iterator[tuple[tuple[int, ...], Block]]:
    for number, message in enumerate(messages):
        for at, block in enumerate(message.content):
            if isinstance(block, ToolResultBlock):
                yield from (((number, at, n), part) for n, part in enumerate(block.content))
            else:
                yield (number, at), block


def _texts(value: object) -> Iterator[str]:
    """Yield the texts in a JSON value, except those of its ``type`` and ``role``."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, held in cast("Mapping[str, object]", value).items():
            if key not in ("type", "role"):
                yield from _texts(held)
    elif isinstance(value, list):
        for held in cast("list[object]", value):
            yield from _texts(held)

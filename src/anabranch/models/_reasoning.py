"""Reasoning that a provider needs back with the results of the tools that the reply calls.

Providers sign or encrypt a model's thinking, and some refuse a tool's result without it: Anthropic
its thinking blocks, OpenAI its reasoning items, Google the signature of a call. The reasoning is
stored with the block that follows it. Only the adapter of the same provider reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_ai import messages as ai

from anabranch.messages import Reasoning


@dataclass
class _Data:
    """The data of a ``Reasoning``.

    Attributes:
        thinking: the parts before the block.
        id: the provider's id of the block itself.
        details: other data of the provider about the block, such as a signature.
    """

    thinking: list[ai.ThinkingPart] = field(default_factory=list[ai.ThinkingPart])
    id: str | None = None
    details: dict[str, Any] | None = None


_DATA: TypeAdapter[_Data] = TypeAdapter(_Data)


def without_thinking(
    parts: Sequence[ai.ModelResponsePart],
) -> Iterator[tuple[ai.ModelResponsePart, Reasoning | None]]:
    """Yield the parts of a reply without its thinking, each with the reasoning to store with it.

    A reply without tool calls has no reasoning: it ends the turn, and providers need reasoning only
    within a turn.
    """
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
    """Return whether the block of ``part`` stays in the conversation; a blank text does not."""
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


def with_reasoning(
    part: ai.TextPart | ai.ToolCallPart, reasoning: Reasoning | None, provider: str
) -> Iterator[ai.ModelResponsePart]:
    """Yield ``part`` after its reasoning, if the reasoning is from ``provider``."""
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

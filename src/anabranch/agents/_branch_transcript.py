"""The transcript of a branch: its messages as one text, from which a memory learns."""

from __future__ import annotations

import json
from collections.abc import Iterable

from anabranch.messages import Block, Message, TextBlock, ToolResultBlock, ToolUseBlock, text_of

__all__ = ["transcript"]


def transcript(messages: Iterable[Message]) -> str:
    """Return what was said, which tools were called, and what they returned, in order."""
    return "\n".join(_line(message.role, each) for message in messages for each in message.content)


def _line(role: str, block: Block) -> str:
    match block:
        case TextBlock():
            return f"{role}: {block.text}"
        case ToolUseBlock():
            return f"{role} calls {block.name} {json.dumps(block.input, ensure_ascii=False)}"
        case ToolResultBlock():
            texts = text_of(each for each in block.content if isinstance(each, TextBlock))
            return f"{'error' if block.is_error else 'result'}: {texts}"
        case _:
            return f"({block.type})"

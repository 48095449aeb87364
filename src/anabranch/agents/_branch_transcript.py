"""The transcript of a branch: its messages as one text, from which a memory learns."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable

from anabranch.agents._agent_tools import ToolUse
from anabranch.messages import Block, Message, TextBlock, ToolResultBlock, ToolUseBlock, text_of
from anabranch.tree import Node, project


async def transcript_of(here: ToolUse, start: Node, end: Node) -> str:
    """Return what was done in a branch from its first node to ``end``, without its task.

    That is what was said, which tools were called, and what they returned, in order.
    """
    if end.id == start.id:
        return ""
    path = await here.timeline.dependencies.store.path(end.id)
    first = [node.id for node in path.nodes].index(start.id)
    messages = project(path.nodes[first:], path.results)[1:]
    uses = {use.id for use in end.tool_uses}
    return _text(each for each in messages if not _answers(each, uses))


def _answers(message: Message, uses: Collection[str]) -> bool:
    """Whether a message has the results of ``uses``, which have none yet."""
    return any(isinstance(b, ToolResultBlock) and b.tool_use_id in uses for b in message.content)


def _text(messages: Iterable[Message]) -> str:
    return "\n".join(_line(message.role, each) for message in messages for each in message.content)


def _line(role: str, block: Block) -> str:
    match block:
        case TextBlock():
            return f"{role}: {block.text}"
        case ToolUseBlock():
            given = block.malformed or json.dumps(block.input, ensure_ascii=False)
            return f"{role} calls {block.name} {given}"
        case ToolResultBlock():
            texts = text_of(each for each in block.content if isinstance(each, TextBlock))
            return f"{'error' if block.is_error else 'result'}: {texts}"
        case _:
            return f"({block.type})"

"""What happens in a turn, as it happens: for a terminal, a page, a log.

Owns the shapes. The tree is the truth; an event tells of it once and is not kept.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from anabranch._engine import Notice
from anabranch.messages import ToolUseBlock
from anabranch.tree import Node, Result

__all__ = [
    "Event",
    "Listener",
    "NodeAdded",
    "TextReceived",
    "ToolEnded",
    "ToolNoticed",
    "ToolStarted",
    "nobody",
]


@dataclass(frozen=True, slots=True)
class NodeAdded:
    """A node is in the store."""

    node: Node


@dataclass(frozen=True, slots=True)
class TextReceived:
    """The model goes on speaking, after the node ``after``."""

    after: str
    text: str


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """A tool that the node ``caller`` has called is running."""

    caller: str
    use: ToolUseBlock


@dataclass(frozen=True, slots=True)
class ToolNoticed:
    """A tool sends a log line or its progress."""

    caller: str
    use: ToolUseBlock
    notice: Notice


@dataclass(frozen=True, slots=True)
class ToolEnded:
    """A tool has returned.

    ``result`` is in the store; of a question that was answered anew, it comes there along with the
    node that follows.
    """

    use: ToolUseBlock
    result: Result


Event: TypeAlias = NodeAdded | TextReceived | ToolStarted | ToolNoticed | ToolEnded
Listener: TypeAlias = Callable[[Event], Awaitable[None]]


async def nobody(event: Event) -> None:
    """Listen to nothing."""
    del event

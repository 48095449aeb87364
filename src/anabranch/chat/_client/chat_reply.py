"""The outcome of a turn of a chat, as its events say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from ag_ui.core import (
    CustomEvent,
    Event,
    RunFinishedCancelledOutcome,
    RunFinishedEvent,
    TextMessageContentEvent,
    TextMessageStartEvent,
)

NODE = "anabranch.node"
"""The custom event that announces a node of the tree."""


@dataclass(frozen=True, slots=True)
class ChatReply:
    """The last reply of a turn.

    Attributes:
        text: what the model said last; empty if it said nothing.
        node_id: the node of the tree that has it, ``None`` where the server names none.
        is_stopped: whether the turn was stopped before its end.
    """

    text: str = ""
    node_id: str | None = None
    is_stopped: bool = False

    def __str__(self) -> str:
        return self.text


class ReplyReader:
    """Reads a turn's reply from its events; what is said in branches is none of it."""

    def __init__(self) -> None:
        self.reply: ChatReply = ChatReply()

    def read(self, event: Event) -> None:
        """Take note of one event."""
        if getattr(event, "subagent_run_id", None) is not None:
            return
        match event:
            case TextMessageStartEvent():
                self.reply = ChatReply()
            case TextMessageContentEvent(delta=delta):
                self.reply = ChatReply(self.reply.text + delta)
            case CustomEvent(name=name, value=value) if name == NODE and isinstance(value, dict):
                self.read_node(cast("Mapping[str, Any]", value))
            case RunFinishedEvent(outcome=RunFinishedCancelledOutcome()):
                self.reply = ChatReply(self.reply.text, self.reply.node_id, is_stopped=True)
            case _:
                pass

    def read_node(self, node: Mapping[str, Any]) -> None:
        """Take note of a node, as the export has it."""
        if node.get("kind") == "assistant":
            blocks = cast("list[Mapping[str, Any]]", node.get("content") or [])
            text = "".join(str(each["text"]) for each in blocks if each.get("type") == "text")
            self.reply = ChatReply(text, str(node.get("id")))

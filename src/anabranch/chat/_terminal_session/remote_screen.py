"""The screen of a chat whose server is elsewhere: shows its AG-UI events.

What the model says goes to stdout, what tools and branches do to stderr. All of it is foreign text.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, cast

from ag_ui.core import (
    CustomEvent,
    Event,
    RunFinishedCancelledOutcome,
    RunFinishedEvent,
    RunFinishedSuccessOutcome,
    TextMessageContentEvent,
    TextMessageEndEvent,
    ToolCallArgsEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
)

from anabranch._terminal.console import Console
from anabranch.chat._client.chat_reply import ChatReply
from anabranch.chat._terminal_session.replies import Replies
from anabranch.tree import cut

MAX_SHOWN = 200
"""Characters of a tool's input or result."""
STOPPED = "Stopped by you. What was received is stored."
NOTICE = "anabranch.notice"


class RemoteScreen:
    """Shows the events of turns, one turn after the other.

    Args:
        console: for everything but the conversation.
        replies: for the conversation.
    """

    def __init__(self, console: Console, replies: Replies) -> None:
        self._console = console
        self._replies = replies
        self._tools: dict[str, str] = {}
        """The names of tools, by the ids of their uses."""
        self._unsaid = ""
        """What a tool has returned, until the model says something."""

    def show(self, event: Event) -> None:
        """Show one event."""
        inner = getattr(event, "subagent_run_id", None) is not None
        match event:
            case TextMessageContentEvent(delta=delta) if not inner:
                self._unsaid = ""
                self._replies.stream(delta)
            case TextMessageEndEvent() if not inner:
                self._replies.end_line()
            case ToolCallStartEvent(tool_call_id=use, tool_call_name=name):
                self._tools[use] = self._replies.running[use] = name
            case ToolCallArgsEvent(tool_call_id=use, delta=delta):
                self._say(f"→ {self._tools.get(use, '?')}({delta})")
            case ToolCallResultEvent(tool_call_id=use, content=content, metadata=about):
                self._replies.running.pop(use, None)
                text = content if isinstance(content, str) else "(media)"
                self._unsaid = "" if inner else text
                self._say(f"← {self._name(use, about)}: {' '.join(text.split())}")
            case CustomEvent(name=name, value=value) if name == NOTICE and isinstance(value, dict):
                self._notice(cast("Mapping[str, Any]", value))
            case RunFinishedEvent(outcome=RunFinishedCancelledOutcome()):
                self._say(STOPPED)
            case RunFinishedEvent(outcome=None | RunFinishedSuccessOutcome()) if self._unsaid:
                self._replies.print(self._unsaid)  # the person has called the tool
                self._unsaid = ""
            case _:
                pass

    def show_last(self, reply: ChatReply) -> None:
        """Show the reply with which the conversation has ended."""
        if reply.text:
            self._replies.print(reply.text, markdown=True)

    def turn(self) -> AbstractContextManager[None]:
        """Show within the block that the server is carrying out a line."""
        return self._replies.turn("the server")

    def end_line(self) -> None:
        """End the line of a reply that was interrupted."""
        self._replies.end_line()

    def _notice(self, notice: Mapping[str, Any]) -> None:
        name = self._name(str(notice.get("toolCallId")), notice)
        level, far, total = (notice.get(each) for each in ("level", "progress", "total"))
        how = f"{level}: " if level else ""
        if far is not None:
            how = f"{far:g}/{total:g} " if total is not None else f"{far:g} "
        self._say(f"[{name}] {how}{notice.get('message') or ''}")

    def _name(self, use: str, about: Mapping[str, Any] | None) -> str:
        """Return the name of a tool that was called here, or in a run that was not seen."""
        return self._tools.get(use) or str((about or {}).get("toolName", "?"))

    def _say(self, line: str) -> None:
        self._replies.end_line()
        self._console.say(cut(line, MAX_SHOWN))

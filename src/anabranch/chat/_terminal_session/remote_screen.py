"""The screen of a chat whose server is elsewhere: shows its AG-UI events.

What the model says goes to stdout, what tools and branches do to stderr. All of it is foreign text.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, TextIO, cast

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

from anabranch._printable import printable
from anabranch._terminal.console import Console
from anabranch.tree import cut

__all__ = ["STOPPED", "RemoteScreen"]

MAX_SHOWN = 200
"""Characters of a tool's input or result."""
STOPPED = "Stopped. What was received is stored."
NOTICE = "anabranch.notice"


class RemoteScreen:
    """Shows the events of turns, one turn after the other.

    Args:
        console: for everything but the conversation.
        out: for the conversation; ``sys.stdout`` by default.
    """

    def __init__(self, console: Console, out: TextIO | None = None) -> None:
        self._console = console
        self._out = out or sys.stdout
        self._in_line = False
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
                self._write(delta)
                self._in_line = True
            case TextMessageEndEvent() if not inner:
                self.end_line()
            case ToolCallStartEvent(tool_call_id=use, tool_call_name=name):
                self._tools[use] = name
            case ToolCallArgsEvent(tool_call_id=use, delta=delta):
                self._say(f"→ {self._tools.get(use, '?')}({delta})")
            case ToolCallResultEvent(tool_call_id=use, content=content):
                text = content if isinstance(content, str) else "(media)"
                self._unsaid = "" if inner else text
                self._say(f"← {self._tools.get(use, '?')}: {' '.join(text.split())}")
            case CustomEvent(name=name, value=value) if name == NOTICE and isinstance(value, dict):
                self._notice(cast("Mapping[str, Any]", value))
            case RunFinishedEvent(outcome=RunFinishedCancelledOutcome()):
                self._say(STOPPED)
            case RunFinishedEvent(outcome=None | RunFinishedSuccessOutcome()) if self._unsaid:
                self._write(f"{self._unsaid}\n")  # the person has called the tool
                self._unsaid = ""
            case _:
                pass

    def end_line(self) -> None:
        """End the line of a reply that was interrupted."""
        if self._in_line:
            self._write("\n")
            self._in_line = False

    def _notice(self, notice: Mapping[str, Any]) -> None:
        name = self._tools.get(str(notice.get("toolCallId")), "?")
        level, far, total = (notice.get(each) for each in ("level", "progress", "total"))
        how = f"{level}: " if level else ""
        if far is not None:
            how = f"{far:g}/{total:g} " if total is not None else f"{far:g} "
        self._say(f"[{name}] {how}{notice.get('message') or ''}")

    def _say(self, line: str) -> None:
        self.end_line()
        self._console.say(cut(line, MAX_SHOWN))

    def _write(self, text: str) -> None:
        self._out.write(printable(text))
        self._out.flush()

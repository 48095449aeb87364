"""What is seen of a chat: answers as they come, and what commands return.

Owns where each thing goes: the conversation and what commands return to stdout; errors, what tools
and branches do, and questions to stderr. What is said in branches beside the cursor is told in a
line each, since several may speak at once.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import replace
from typing import TextIO

from anabranch._terminal.console import Console
from anabranch._terminal.plain_text import printable
from anabranch.agents._events import (
    Event,
    NodeAdded,
    TextReceived,
    ToolEnded,
    ToolNoticed,
    ToolStarted,
)
from anabranch.chat._session import Output, Session, World
from anabranch.errors import StoreError
from anabranch.messages import text_of
from anabranch.tree import Node
from anabranch.tree._walking import cut, glimpse

__all__ = ["Screen"]

SHOWN = 200
"""Characters of what a tool or a branch says."""
CLEAR = "\x1b[2J\x1b[H"


class Screen:
    """Shows one session.

    Args:
        console: for everything but the conversation.
        out: for the conversation; ``sys.stdout`` by default.
    """

    def __init__(self, console: Console, out: TextIO | None = None) -> None:
        self._console = console
        self._out = out or sys.stdout
        self._session: Session | None = None
        self._in_line = False
        self._shown: set[str] = set()
        self._callers: set[str] = set()
        self._branches: dict[str, str] = {}

    def show_session(self, world: World, thread_id: str | None) -> Session:
        """Return a session in ``world``, whose turns are shown here as they happen."""
        self._session = Session(replace(world, listener=self.hear), thread_id=thread_id)
        return self._session

    def tell(self, outputs: Iterable[Output]) -> None:
        """Show where a session begins: about the conversation, not part of it."""
        for output in outputs:
            self._console.say(output.content)

    def show(self, outputs: Iterable[Output]) -> None:
        """Show what a line has given; text that was seen as it came is not shown again."""
        self.end_line()
        for output in outputs:
            if output.action == "clear" and self._out.isatty():
                self._out.write(CLEAR)
            if output.type == "error":
                self._console.say(f"error: {output.content}")
            elif output.content and output.node_id not in self._shown:
                self._write(f"{output.content}\n")
        self._out.flush()
        self._shown.clear()
        self._callers.clear()
        self._branches.clear()

    def end_line(self) -> None:
        """End the line of a text that has broken off."""
        if self._in_line:
            self._write("\n")
            self._in_line = False

    async def hear(self, event: Event) -> None:
        """Show what happens in a turn."""
        match event:
            case TextReceived(after, text) if after == self._cursor:
                self._write(text)
                self._in_line = True
            case NodeAdded(node) if node.id == self._cursor:
                self._said(node)
            case NodeAdded(node) if node.role == "assistant" and self._verbose:
                await self._said_beside(node)
            case ToolStarted(caller, use) if caller in self._callers and self._verbose:
                self._console.say(cut(f"→ {use.name}({json.dumps(use.input)})", SHOWN))
            case ToolEnded(use, result) if result.node_id in self._callers and self._verbose:
                told = " ".join(text_of(result.pending or result.content).split())
                self._console.say(cut(f"← {use.name}: {told}", SHOWN))
            case ToolNoticed(_, use, notice) if self._verbose or notice.level is None:
                self._console.say(f"[{use.name}] {notice.message}")
            case _:
                pass

    @property
    def _cursor(self) -> str | None:
        return self._session.cursor if self._session is not None else None

    @property
    def _verbose(self) -> bool:
        return self._session is not None and self._session.settings.verbose

    def _said(self, node: Node) -> None:
        """Something was said at the cursor, streamed or not."""
        if node.kind != "assistant":
            return
        if not self._in_line and node.text.strip():
            self._write(node.text)
            self._in_line = True
        self.end_line()
        self._shown.add(node.id)
        if node.tool_uses:
            self._callers.add(node.id)

    async def _said_beside(self, node: Node) -> None:
        """Something was said in a branch."""
        if self._session is None:
            return
        if node.parent_id not in self._branches:
            # Branches are opened before anything is said in one: mostly, this is done once.
            self._branches = await _branches(self._session)
        name = self._branches[node.id] = self._branches.get(str(node.parent_id), "")
        self._console.say(f"[{name or 'beside'}] {glimpse(node, SHOWN)}")

    def _write(self, text: str) -> None:
        self._out.write(printable(text))
        self._out.flush()


async def _branches(session: Session) -> dict[str, str]:
    """Return the name of the branch that each node is on; nothing if the store does not tell."""
    try:
        walk = await session.look()
    except StoreError:
        # What is heard comes out of a turn: raised here, it would end a branch that has answered.
        return {}
    return walk.branches if walk is not None else {}

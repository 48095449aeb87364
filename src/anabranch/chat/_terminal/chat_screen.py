"""Shows a chat at the terminal: replies as they arrive, and the output of commands.

The conversation and the output of commands go to stdout, everything else to stderr. A reply in a
branch next to the cursor takes one line, as several branches may reply at the same time.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager

from anabranch._terminal import Console
from anabranch._text import json_line
from anabranch.agents import Event, NodeAdded, TextReceived, ToolEnded, ToolNoticed, ToolStarted
from anabranch.chat._terminal.replies import NO_MODEL, Replies
from anabranch.chat._terminal.session import Session
from anabranch.chat._terminal.session_output import Output, ending, result_text
from anabranch.errors import StoreError
from anabranch.tree import Node, cut, glimpse, state_of_reply

MAX_SHOWN = 200
"""Characters of a tool's input or result, or of a reply in a branch."""


class ChatScreen:
    """Shows a session at the terminal; ``replies`` shows the conversation."""

    def __init__(self, console: Console, replies: Replies) -> None:
        self._console = console
        self._replies = replies
        self._shown: set[str] = set()
        self._uses: set[str] = set()
        self._branches: dict[str, str] = {}
        self._said: set[str] = set()
        """Messages that a command sent in branches next to the cursor, whose replies it returns."""

    def attach(self, session: Session) -> None:
        self._session: Session = session

    def turn(self) -> AbstractContextManager[None]:
        name = self._session.model_name
        return self._replies.turn("the model" if name == NO_MODEL else name.rpartition("/")[2])

    def show_beginning(self, outputs: Iterable[Output]) -> None:
        for output in outputs:
            self._console.say(output.content)

    def show(self, outputs: Iterable[Output]) -> None:
        self._replies.end_line()
        for output in outputs:
            if output.action == "clear":
                self._replies.clear()
            if output.type == "error":
                self._console.say(f"error: {output.content}")
            elif output.content and output.node_id not in self._shown:
                self._replies.print(output.content, markdown=output.is_markdown)
        self._shown.clear()
        self._uses.clear()
        self._branches.clear()
        self._said.clear()

    def end_line(self) -> None:
        self._replies.end_line()

    async def on_event(self, event: Event) -> None:
        self._follow_tools(event)
        match event:
            case TextReceived(after, text) if after == self._cursor:
                self._replies.stream(text)
            case NodeAdded(node) if node.id == self._cursor:
                self._show_reply(node)
            case NodeAdded(node) if node.kind == "user":
                self._said.add(node.id)
            case NodeAdded(node) if node.parent_id in self._said and not node.tool_uses:
                pass
            case NodeAdded(node) if node.role == "assistant" and self._verbose:
                await self._show_reply_beside(node)
            case ToolStarted(_, use) if use.id in self._uses and self._verbose:
                self._console.say(cut(f"→ {use.name}({json_line(use.input)})", MAX_SHOWN))
            case ToolEnded(use, result) if use.id in self._uses and self._verbose:
                text = " ".join(result_text(result.pending or result.content).split())
                self._console.say(cut(f"← {use.name}: {text}", MAX_SHOWN))
            case ToolNoticed(_, use, notice) if self._verbose or notice.level is None:
                self._console.say(f"[{use.name}] {notice.message}")
            case _:
                pass

    async def place_of(self, node_id: str) -> str:
        return (await _branches(self._session)).get(node_id, "")

    def _follow_tools(self, event: Event) -> None:
        match event:
            case ToolStarted(_, use):
                self._replies.running[use.id] = use.name
            case ToolEnded(use, _):
                self._replies.running.pop(use.id, None)
            case _:
                pass

    @property
    def _cursor(self) -> str | None:
        return self._session.cursor.node_id

    @property
    def _verbose(self) -> bool:
        return self._session.settings.verbose

    def _show_reply(self, node: Node) -> None:
        if node.kind != "assistant":
            return
        if not self._replies.in_line and node.text.strip():
            self._replies.stream(node.text)
        self._replies.end_line()
        if state := state_of_reply(node):
            self._console.say(ending(state))
        self._shown.add(node.id)
        self._uses.update(use.id for use in node.tool_uses)

    async def _show_reply_beside(self, node: Node) -> None:
        if node.parent_id not in self._branches:
            # All branches open before the first reply of any, so one read is mostly enough.
            self._branches = await _branches(self._session)
        name = self._branches[node.id] = self._branches.get(str(node.parent_id), "")
        self._console.say(f"[{name or 'other branch'}] {glimpse(node, MAX_SHOWN)}")


async def _branches(session: Session) -> dict[str, str]:
    try:
        walk = await session.cursor.look()
    except StoreError:
        # This runs in a listener: an error would end a branch that has replied already.
        return {}
    return walk.branches if walk is not None else {}

"""The display of a chat's replies, here as plain text for a file or a pipe.

``live_replies.py`` shows replies at a terminal. ``chat_screen.py`` decides for both which parts of a
session are shown.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TextIO

from anabranch._text import printable
from anabranch.chat._chat_session import Session
from anabranch.errors import StoreError
from anabranch.models import price_of
from anabranch.tree import Node, short_ids

NO_MODEL = "none"


async def status_line(session: Session) -> str:
    """Return the line about the session's place; its tokens and cost are those of the path there."""
    thread_id, node_id = session.cursor.thread_id, session.cursor.node_id
    model = session.state.model_name.rpartition("/")[2]  # the line is short
    parts = ["no model" if model == NO_MODEL else model, short_ids([thread_id])[thread_id]]
    try:
        walk = await session.cursor.look()
    except StoreError:  # the next line reports it, if the store still fails then
        walk = None
    if walk is None or node_id is None or node_id not in walk.nodes:
        return " · ".join([*parts, "at the beginning"])
    path = walk.path(node_id)
    place = walk.branch_of(node_id) or "main line"
    labels = ", ".join(walk.labels.get(node_id, ()))
    parts.append(f"{place} ({labels})" if labels else place)
    tokens = sum(node.usage.total_tokens for node in path if node.usage is not None)
    parts += [f"{tokens:,} tokens"] if tokens else []
    costs = [cost for node in path if (cost := _cost(node)) is not None]
    parts += [f"${sum(costs):.4f}"] if costs else []
    return " · ".join(parts)


def _cost(node: Node) -> float | None:
    model = node.data.get("model")
    if node.usage is None or not isinstance(model, str):
        return None
    return price_of(model, node.usage)


CLEAR = "\x1b[2J\x1b[H"


class Replies:
    """Writes replies to ``out``, by default ``sys.stdout``."""

    columns: Callable[[], int] | None = None
    """Returns the present width of the terminal, if there is one."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self.in_line = False
        """Whether a reply is arriving."""
        self.running: dict[str, str] = {}
        """The names of the running tools, by the ids of their uses."""

    def turn(self, awaited: str) -> AbstractContextManager[None]:
        """Show the wait for ``awaited`` or a tool within the block; here, show nothing."""
        del awaited
        return nullcontext()

    def stream(self, text: str) -> None:
        """Show a piece of an arriving reply."""
        self._write(text)
        self.in_line = True

    def end_line(self) -> None:
        """End the arriving reply, if there is one."""
        if self.in_line:
            self._write("\n")
            self.in_line = False

    def print(self, text: str, *, markdown: bool = False) -> None:
        """Show text that is not part of an arriving reply."""
        del markdown
        self._write(f"{text}\n")

    def clear(self) -> None:
        """Clear the screen, if ``out`` is one."""
        if self._out.isatty():
            self._out.write(CLEAR)
            self._out.flush()

    def _write(self, text: str) -> None:
        self._out.write(printable(text))
        self._out.flush()

"""The display of replies in a chat: here written plainly, to a file or a pipe.

``live_replies.py`` shows them at a terminal. Which of the two it is, is nothing to the screens, which
decide what is shown: ``chat_screen.py`` of a session, ``remote_screen.py`` of a server elsewhere.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TextIO

from anabranch._text import printable

CLEAR = "\x1b[2J\x1b[H"


class Replies:
    """Writes replies to ``out``, by default ``sys.stdout``."""

    columns: Callable[[], int] | None = None
    """Returns the width of the terminal now, where there is one."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self.in_line = False
        """Whether a reply is arriving."""
        self.running: dict[str, str] = {}
        """The names of the tools that run, by the ids of their uses."""

    def turn(self, awaited: str) -> AbstractContextManager[None]:
        """Show within the block that ``awaited``, or a tool, is waited for; here it is not shown."""
        del awaited
        return nullcontext()

    def stream(self, text: str) -> None:
        """Show a piece of a reply that is arriving."""
        self._write(text)
        self.in_line = True

    def end_line(self) -> None:
        """End the reply that was arriving, if there is one."""
        if self.in_line:
            self._write("\n")
            self.in_line = False

    def print(self, text: str, *, markdown: bool = False) -> None:
        """Show what is not part of a reply that arrives."""
        del markdown
        self._write(f"{text}\n")

    def clear(self) -> None:
        """Clear the screen, if this is one."""
        if self._out.isatty():
            self._out.write(CLEAR)
            self._out.flush()

    def _write(self, text: str) -> None:
        self._out.write(printable(text))
        self._out.flush()

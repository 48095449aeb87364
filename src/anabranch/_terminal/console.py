"""What the person sees: lines on stderr, and one question at a time.

Owns the order of what is shown. stdout is never written here, since it carries results alone.
While a question stands on the screen, lines wait, so that they do not tear the form apart.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import AsyncGenerator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from typing import TextIO

import anyio
from prompt_toolkit.application import create_app_session
from prompt_toolkit.output import create_output

__all__ = ["Console", "log_to_stderr", "printable"]

CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """Return ``text`` without what could move the cursor or change the terminal.

    Much of what is shown was written by a server, which may be anybody's.
    """
    return CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


def log_to_stderr(level: int) -> None:
    """Write log records of ``level`` and above to stderr, one plain line each.

    It goes before the SDK's own set-up, which draws boxes around tracebacks and yields to this.
    """
    logging.basicConfig(level=level, format="%(levelname)s %(name)s: %(message)s")


class Console:
    """The terminal, or what stands in for it.

    Args:
        stream: where lines go; ``sys.stderr`` by default.
        interactive: whether a person can answer here; by default, whether stdin and stderr are
            a terminal.
    """

    def __init__(self, stream: TextIO | None = None, *, interactive: bool | None = None) -> None:
        self.stream: TextIO = stream or sys.stderr
        self.interactive: bool = _is_terminal() if interactive is None else interactive
        self._turn = anyio.Lock()
        self._asking = False
        self._held: list[str] = []

    def say(self, line: str) -> None:
        """Show a line, at once or after the question that stands."""
        if self._asking:
            self._held.append(line)
        else:
            self.show(line)

    @asynccontextmanager
    async def question(self) -> AsyncGenerator[None]:
        """Have the screen to oneself: further questions and lines wait."""
        async with self._turn:
            self._asking = True
            try:
                with self._screen():
                    yield
            finally:
                self._asking = False
                held, self._held = self._held, []
                for line in held:
                    self.say(line)

    def _screen(self) -> AbstractContextManager[object]:
        """Prompts are drawn where lines go, if that is a terminal, and not on stdout."""
        if self.stream.isatty():
            return create_app_session(output=create_output(stdout=self.stream))
        return nullcontext()

    def show(self, text: str) -> None:
        """Show what belongs to the question that stands."""
        print(printable(text), file=self.stream, flush=True)


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()

"""The console: lines on stderr, held back while a question is on the screen."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager
from functools import partial
from textwrap import wrap
from typing import TYPE_CHECKING, TextIO

import anyio

from anabranch._text import printable

if TYPE_CHECKING:
    from anabranch._terminal.live_region import LiveRegion

COLUMNS = 80
"""The assumed width of a terminal that reports none."""


class Console:
    """Writes lines and draws questions; ``interactive``: whether a user can answer here."""

    def __init__(self, stream: TextIO | None = None, *, interactive: bool | None = None) -> None:
        self.stream: TextIO = stream or sys.stderr
        self.interactive: bool = (
            sys.stdin.isatty() and is_drawable(sys.stderr) if interactive is None else interactive
        )
        self.region: LiveRegion | None = None
        """The text that the terminal redraws below the last line, if there is any."""
        self._turn = anyio.Lock()
        self._asking = False
        self._waiting: list[str] = []

    def say(self, line: str) -> None:
        if self._asking:
            self._waiting.append(line)
        else:
            self.show(line)

    @asynccontextmanager
    async def question(self) -> AsyncGenerator[None]:
        """Reserve the screen for one question; further questions and lines wait until it ends."""
        async with self._turn:
            self._asking = True
            try:
                with self._screen():
                    yield
            finally:
                self._asking = False
                waiting, self._waiting = self._waiting, []
                for line in waiting:
                    self.say(line)

    def _screen(self) -> AbstractContextManager[object]:
        screen = ExitStack()
        if self.region is not None:
            screen.enter_context(self.region.paused())
        if is_drawable(self.stream):
            from prompt_toolkit.application import create_app_session
            from prompt_toolkit.output import create_output

            screen.enter_context(create_app_session(output=create_output(stdout=self.stream)))
        return screen

    def show(self, text: str) -> None:
        """Show a text of the open question, without waiting for the question to end."""
        if self.region is not None:
            from rich.text import Text

            self.region.print(Text(printable(text)))
        else:
            print(printable(_in_lines(text, self.stream)), file=self.stream, flush=True)


def is_drawable(stream: TextIO) -> bool:
    """Return whether ``stream`` is a terminal that obeys codes, unlike one with ``TERM=dumb``."""
    return stream.isatty() and os.environ.get("TERM", "").lower() not in {"dumb", "unknown"}


def _in_lines(text: str, stream: TextIO) -> str:
    if not stream.isatty():
        return text
    columns = os.get_terminal_size(stream.fileno()).columns or COLUMNS
    wrapped = partial(wrap, width=columns, break_long_words=False, break_on_hyphens=False)
    return "\n".join(part for line in text.split("\n") for part in wrapped(line) or [""])

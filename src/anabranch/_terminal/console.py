"""The console: lines on stderr, and one question on the screen at a time.

While a question is open, lines are held back, so that they do not tear its form apart.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager
from datetime import UTC, datetime
from functools import partial
from textwrap import wrap
from typing import TextIO

import anyio
from prompt_toolkit.application import create_app_session
from prompt_toolkit.output import create_output
from rich.console import Console as RichConsole
from rich.console import RenderableType
from rich.live import Live
from rich.text import Text

from anabranch._telemetry import log_fields
from anabranch._text import LogFormat, PrintableFormatter, printable
from anabranch.errors import format_for_author

FRAMES_PER_SECOND = 8


class LiveRegion:
    """The live region of the terminal ``stream``; there is none until :meth:`drawn`."""

    def __init__(self, stream: TextIO) -> None:
        self._console = RichConsole(file=stream, highlight=False, markup=False, emoji=False)
        self._live: Live | None = None

    @property
    def columns(self) -> int:
        """The width of the terminal now."""
        return self._console.width

    def print(self, shown: RenderableType) -> None:
        """Print above the region; long lines are broken between words."""
        self._console.print(shown)

    @contextmanager
    def drawn(self, draw: Callable[[], RenderableType]) -> Generator[None]:
        """Show what ``draw`` returns, again and again, until the block ends; then nothing of it."""
        self._begin(draw)
        try:
            yield
        finally:
            self._end()

    @contextmanager
    def paused(self) -> Generator[None]:
        """Leave the terminal to something else within the block."""
        draw = self._end()
        try:
            yield
        finally:
            if draw is not None:
                self._begin(draw)

    def _begin(self, draw: Callable[[], RenderableType]) -> None:
        # A Live that begins again would erase what was written since its end.
        self._live = Live(
            console=self._console,
            get_renderable=draw,
            refresh_per_second=FRAMES_PER_SECOND,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()

    def _end(self) -> Callable[[], RenderableType] | None:
        live, self._live = self._live, None
        if live is None:
            return None
        live.stop()
        return live.get_renderable


COLUMNS = 80
"""The width of a terminal that does not know its own."""


class JsonFormatter(logging.Formatter):
    """Formats a log record as one line of JSON, in ASCII, with the id of the call that it is about."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        written = datetime.fromtimestamp(record.created, UTC)
        fields = {
            "time": written.isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **log_fields(),
        }
        if record.exc_info and record.exc_info[0] is not None:
            fields["error"] = format_for_author(*record.exc_info)
        return json.dumps(fields)


def log_to_stderr(level: int, form: LogFormat = "text") -> None:
    """Write log records of ``level`` and above to stderr, one line each: plain, or JSON.

    It has to come before the SDK sets up logging, which draws boxes around tracebacks and does
    nothing where logging is set up already.
    """
    handler = logging.StreamHandler()
    text = PrintableFormatter("%(levelname)s %(name)s: %(message)s")
    handler.setFormatter(text if form == "text" else JsonFormatter())
    logging.basicConfig(level=level, handlers=[handler])


class Console:
    """The terminal, or another stream in its place.

    Args:
        stream: where lines are written; ``sys.stderr`` by default.
        interactive: whether a person can answer here; by default, whether both stdin and stderr
            are a terminal.
    """

    def __init__(self, stream: TextIO | None = None, *, interactive: bool | None = None) -> None:
        self.stream: TextIO = stream or sys.stderr
        self.interactive: bool = _is_terminal() if interactive is None else interactive
        self.region: LiveRegion | None = None
        """What is drawn below the last line, if anything is."""
        self._turn = anyio.Lock()
        self._asking = False
        self._waiting: list[str] = []

    def say(self, line: str) -> None:
        """Show a line: at once, or after the question that is open."""
        if self._asking:
            self._waiting.append(line)
        else:
            self.show(line)

    @asynccontextmanager
    async def question(self) -> AsyncGenerator[None]:
        """Reserve the screen for one question; further questions and lines wait for its end."""
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
        """Have prompts drawn on the stream, if that is a terminal, and not on stdout."""
        screen = ExitStack()
        if self.region is not None:
            screen.enter_context(self.region.paused())
        if self.stream.isatty():
            screen.enter_context(create_app_session(output=create_output(stdout=self.stream)))
        return screen

    def show(self, text: str) -> None:
        """Show a text that belongs to the open question, at once."""
        if self.region is not None:
            self.region.print(Text(printable(text)))
        else:
            print(printable(_in_lines(text, self.stream)), file=self.stream, flush=True)


def _in_lines(text: str, stream: TextIO) -> str:
    """Return ``text`` broken between words where ``stream`` is a terminal; long words stay whole."""
    if not stream.isatty():
        return text
    columns = os.get_terminal_size(stream.fileno()).columns or COLUMNS
    wrapped = partial(wrap, width=columns, break_long_words=False, break_on_hyphens=False)
    return "\n".join(part for line in text.split("\n") for part in wrapped(line) or [""])


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()

"""The stderr of a command: lines and questions, a region that is drawn again and again, and the log."""

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
from typing import TYPE_CHECKING, TextIO

import anyio

from anabranch._text import LogFormat, PrintableFormatter, printable
from anabranch.errors import format_for_author

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

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


class LiveRegion:
    """The last lines of a terminal, ``stream``, which :meth:`drawn` draws again and again."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console as RichConsole

        self._console = RichConsole(file=stream, highlight=False, markup=False, emoji=False)
        self._live: Live | None = None

    @property
    def columns(self) -> int:
        return self._console.width

    def print(self, shown: RenderableType) -> None:
        self._console.print(shown)

    @contextmanager
    def drawn(self, draw: Callable[[], RenderableType]) -> Generator[None]:
        self._begin(draw)
        try:
            yield
        finally:
            self._end()

    @contextmanager
    def paused(self) -> Generator[None]:
        draw = self._end()
        try:
            yield
        finally:
            if draw is not None:
                self._begin(draw)

    def _begin(self, draw: Callable[[], RenderableType]) -> None:
        from rich.live import Live

        # A restarted Live would erase the lines written since its end.
        self._live = Live(
            console=self._console,
            get_renderable=draw,
            refresh_per_second=8,
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


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        from anabranch._telemetry import log_fields  # imports OpenTelemetry

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


SHOWN = 200
"""Characters of a server's line in the log."""


def shorten_stray_line(record: logging.LogRecord) -> bool:
    """Turn the SDK's traceback about a server's line on stdout into one sentence."""
    error = record.exc_info[1] if record.exc_info else None
    if record.name != "mcp.client.stdio":
        return True
    from pydantic import ValidationError

    if isinstance(error, ValidationError):
        line = error.errors(include_url=False, include_context=False)[0]["input"]
        shown = line if isinstance(line, str) and len(line) <= SHOWN else f"{str(line)[:SHOWN]}…"
        record.levelname, record.levelno = "WARNING", logging.WARNING
        record.msg = "left out a line of a server's stdout that is not an MCP message: %s"
        record.args, record.exc_info, record.exc_text = (shown,), None, None
    return True


def log_to_stderr(level: int, form: LogFormat = "text") -> None:
    """Write log records to stderr. The SDK, set up later, keeps existing logging."""
    handler = logging.StreamHandler()
    text = PrintableFormatter("%(levelname)s %(name)s: %(message)s")
    handler.addFilter(shorten_stray_line)
    handler.setFormatter(text if form == "text" else JsonFormatter())
    logging.basicConfig(level=level, handlers=[handler])

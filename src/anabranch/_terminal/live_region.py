"""The live region of a terminal: text that the terminal redraws below the last line."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console as RichConsole
from rich.console import RenderableType
from rich.live import Live


class LiveRegion:
    """The last lines of a terminal, ``stream``, which :meth:`drawn` draws again and again."""

    def __init__(self, stream: TextIO) -> None:
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

"""The screen of a chat at a terminal: Markdown as it arrives, and what is being waited for.

Where the conversation goes to a file or a pipe, ``chat_screen.py`` writes it plainly instead.
"""

from __future__ import annotations

import re
import time
from collections.abc import Generator
from contextlib import contextmanager

from rich.console import Console as RichConsole
from rich.console import ConsoleOptions, Group, RenderableType, RenderResult
from rich.markdown import Markdown
from rich.segment import Segment
from rich.spinner import Spinner
from rich.text import Text

from anabranch._printable import printable
from anabranch._terminal.console import Console
from anabranch._terminal.live_region import LiveRegion
from anabranch.agents import Event, ToolEnded, ToolStarted
from anabranch.chat._session.session_output import Output
from anabranch.chat._terminal_session.chat_screen import ChatScreen

__all__ = ["TerminalScreen"]

_FENCE = re.compile(r"^ {0,3}(```|~~~)", re.MULTILINE)
RESERVED = 4
"""Lines of the terminal that a reply leaves free while it arrives."""


class TerminalScreen(ChatScreen):
    """Shows one session at the terminal of ``console``."""

    def __init__(self, console: Console) -> None:
        super().__init__(console, console.stream)
        self._region = LiveRegion(console.stream)
        console.region = self._region
        self._reply = ""
        self._running: dict[str, str] = {}
        self._began = 0.0

    def columns(self) -> int:
        """Return the width of the terminal now."""
        return self._region.columns

    @contextmanager
    def turn(self) -> Generator[None]:
        """Show what is being waited for while a line is carried out."""
        self._began = time.monotonic()
        self._running.clear()
        spinner = Spinner("dots")

        def draw() -> RenderableType:
            seconds = time.monotonic() - self._began
            waiting = printable(f"{self._waiting()} · {seconds:.0f} s · Ctrl-C ends it")
            spinner.update(text=Text(waiting, "dim"))
            return Group(_LastLines(_markdown(self._reply)), spinner) if self._reply else spinner

        with self._region.drawn(draw):
            try:
                yield
            finally:
                self.end_line()

    async def on_event(self, event: Event) -> None:
        """Show an event of a turn."""
        match event:
            case ToolStarted(_, use):
                self._running[use.id] = use.name
            case ToolEnded(use, _):
                self._running.pop(use.id, None)
            case _:
                pass
        await super().on_event(event)

    def end_line(self) -> None:
        """Print what of a reply has arrived and was not printed yet."""
        rest, self._reply = self._reply, ""
        self._in_line = False
        if rest.strip():
            self._region.print(_markdown(rest))

    def _stream(self, text: str) -> None:
        whole, self._reply = _blocks(self._reply + text)
        if whole.strip():
            self._region.print(_markdown(whole))
        self._in_line = True

    def _print(self, output: Output) -> None:
        if output.is_markdown:
            self._region.print(_markdown(output.content))
        else:
            self._region.print(Text(printable(output.content)))

    def _waiting(self) -> str:
        """Return what the turn waits for."""
        if self._running:
            return f"running {', '.join(dict.fromkeys(self._running.values()))}"
        name = self._session.state.model_name if self._session is not None else "none"
        model = name.rpartition("/")[2]
        return f"waiting for {'the model' if model == 'none' else model}"


class _LastLines:
    """The last lines of something that may be higher than the terminal."""

    def __init__(self, shown: RenderableType) -> None:
        self._shown = shown

    def __rich_console__(self, console: RichConsole, options: ConsoleOptions) -> RenderResult:
        """Render as many lines as there is room for."""
        lines = console.render_lines(self._shown, options, pad=False)
        for line in lines[-max(1, console.height - RESERVED) :]:
            yield from line
            yield Segment.line()


def _markdown(text: str) -> Markdown:
    # Without hyperlinks, the address is shown: the text of a link may be another one.
    return Markdown(printable(text), hyperlinks=False)


def _blocks(text: str) -> tuple[str, str]:
    """Split ``text`` into its whole paragraphs and code blocks, and what is still arriving."""
    end = text.rfind("\n\n")
    while end >= 0:
        if len(_FENCE.findall(text[:end])) % 2 == 0:
            return text[: end + 2], text[end + 2 :]
        end = text.rfind("\n\n", 0, end)
    return "", text

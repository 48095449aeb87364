"""The pictures of commands in a terminal: real ones, in a pseudo-terminal, drawn as SVG (``make pictures``).

A terminal emulator reads what the command writes and holds the screen as a person would see it; what is
drawn is that screen. The text in the picture is text, and no font is fetched for it.
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Generator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import pyte
from pyte.screens import Char
from rich.console import Console
from rich.style import Style
from rich.text import Text

from tests.cli.terminals import AT_TERMINAL
from tests.docs.pages import environment, workplace
from tests.patience import PATIENCE

__all__ = ["ScreenedTerminal", "Size", "at_work", "call", "draw", "main"]

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
FONTS = "ui-monospace, Menlo, Consolas, monospace"


class Size(NamedTuple):
    """What fits on a screen."""

    columns: int = 100
    rows: int = 40


SMALL = Size()


class ScreenedTerminal:
    """A command at a terminal whose screen can be read, and the person who types there."""

    def __init__(self, master: int, size: Size, command: str) -> None:
        self._master = master
        self.screen = pyte.Screen(*size)
        self._stream = pyte.ByteStream(self.screen)
        self._stream.feed(f"$ {command}\r\n".encode())

    def wait_for(self, words: str) -> None:
        """Read until ``words`` are on the screen."""
        while words not in "\n".join(self.screen.display):
            ready, _, _ = select.select([self._master], [], [], PATIENCE)
            assert ready, f"{words!r} never came: {self.shown()}"
            self._stream.feed(os.read(self._master, 4096))

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def rest(self) -> None:
        """Read to the end of the command."""
        try:
            while written := os.read(self._master, 4096):
                self._stream.feed(written)
        except OSError:  # the other side is closed
            pass

    def shown(self) -> list[str]:
        """The lines of the screen, without those that are empty at its end."""
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip().split("\n")


@contextmanager
def at_work(folder: Path, *arguments: str, size: Size = SMALL) -> Generator[ScreenedTerminal]:
    """Run ``anabranch`` with ``arguments`` in ``folder``, at a terminal of that size."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", size.rows, size.columns, 0, 0))
    variables = {**environment(folder), "PROMPT_TOOLKIT_NO_CPR": "1", "TERM": "xterm-256color"}
    with subprocess.Popen(
        [sys.executable, "-c", AT_TERMINAL, "anabranch", *arguments],
        cwd=folder,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=variables,
        start_new_session=True,
    ) as process:
        os.close(slave)
        try:
            yield ScreenedTerminal(master, size, " ".join(["anabranch", *arguments]))
        finally:
            process.kill()
            os.close(master)


def draw(terminal: ScreenedTerminal, title: str) -> str:
    """Return the screen as SVG."""
    console = Console(
        record=True, width=terminal.screen.columns, file=io.StringIO(), force_terminal=True
    )
    for row, shown in enumerate(terminal.shown()):
        line = terminal.screen.buffer[row]
        alike = groupby((line[column] for column in range(len(shown))), _style)
        pieces = [("".join(char.data for char in chars), style) for style, chars in alike]
        console.print(Text.assemble(*pieces), overflow="crop", no_wrap=True)
    svg = console.export_svg(title=title, unique_id="terminal")
    svg = re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    return re.sub(r"font-family: [^;]+;", f"font-family: {FONTS};", svg)


def _style(char: Char) -> Style:
    return Style(
        color=_color(char.fg),
        bgcolor=_color(char.bg),
        bold=char.bold,
        italic=char.italics,
        underline=char.underscore,
        reverse=char.reverse,
    )


def _color(name: str) -> str | None:
    if name == "default":
        return None
    if re.fullmatch("[0-9a-f]{6}", name):
        return f"#{name}"
    return {"brown": "yellow"}.get(name, re.sub("^bright(?=[a-z])", "bright_", name))


def refund(folder: Path) -> ScreenedTerminal:
    """The README's tool: the user approves a refund in a form."""
    with at_work(folder, "call", "refund.py", "refund", "order=A1", "amount=20") as terminal:
        terminal.wait_for("approve")
        terminal.type("y\r")
        terminal.rest()
    return terminal


def call(folder: Path) -> ScreenedTerminal:
    """A tool whose question is a form, and whose model is the user."""
    with at_work(folder, "call", "wizard.py", "plan_trip", "days=2") as terminal:
        terminal.wait_for("city:")
        terminal.type("Vienna\r")
        terminal.wait_for("assistant:")
        terminal.type("Walk the Ring.\r")
        terminal.rest()
    return terminal


def demo(folder: Path) -> ScreenedTerminal:
    """The demonstration, with the first card picked."""
    with at_work(folder, "demo", size=Size(112, 72)) as terminal:
        terminal.wait_for("Card number")
        terminal.type("3\r")
        terminal.rest()
    return terminal


def inspect(folder: Path) -> ScreenedTerminal:
    """All that there is to know about a tool before it is called."""
    with at_work(folder, "inspect", "book_flight.py") as terminal:
        terminal.rest()
    return terminal


SCENES = {
    "refund-terminal": refund,
    "call-terminal": call,
    "demo-terminal": demo,
    "inspect-terminal": inspect,
}


def main() -> None:
    """Take all pictures."""
    for name, scene in SCENES.items():
        folder = Path(tempfile.mkdtemp())
        try:
            terminal = scene(workplace(folder))
            (PICTURES / f"{name}.svg").write_text(draw(terminal, "anabranch"), encoding="utf-8")
        finally:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()

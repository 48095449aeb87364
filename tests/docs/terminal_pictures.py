"""The pictures of commands in a terminal: real commands in a pseudo-terminal, drawn as SVG (``make
pictures``).

A terminal emulator reads the command's output and holds the screen as a user sees it. The picture shows
that screen. Its text is text, and it loads no font.
"""

import io
import re
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from pyte.screens import Char
from rich.console import Console
from rich.style import Style
from rich.text import Text

from tests.cli.terminals import Terminal, terminal
from tests.docs.pages import workplace

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
FONTS = "ui-monospace, Menlo, Consolas, monospace"


class Size(NamedTuple):
    """The number of columns and rows of a screen."""

    columns: int = 100
    rows: int = 40


SMALL = Size()


@contextmanager
def at_work(folder: Path, *arguments: str, size: Size = SMALL) -> Generator[Terminal]:
    """Run ``anabranch`` with ``arguments`` in ``folder``, at a terminal whose first line is the command."""
    colours = {"TERM": "xterm-256color"}
    with terminal(*arguments, whole=True, environment=colours, folder=folder, size=size) as user:
        user.begin(" ".join(["$ anabranch", *arguments]))
        yield user


def draw(user: Terminal, title: str) -> str:
    """Return the screen as SVG."""
    console = Console(
        record=True, width=user.drawn.columns, file=io.StringIO(), force_terminal=True
    )
    for row, shown in enumerate(user.screen.split("\n")):
        line = user.drawn.buffer[row]
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


def refund(folder: Path) -> Terminal:
    """The README's tool: the user approves a refund in a form."""
    with at_work(folder, "call", "refund.py", "refund", "order=A1", "amount=20") as user:
        user.wait_for("approve")
        user.type("y\r")
    return user


def call(folder: Path) -> Terminal:
    """A tool whose question is a form, and whose model is the user."""
    with at_work(folder, "call", "wizard.py", "plan_trip", "days=2") as user:
        user.wait_for("city:")
        user.type("Vienna\r")
        user.wait_for("assistant:")
        user.type("Walk the Ring.\r")
    return user


def demo(folder: Path) -> Terminal:
    """The demonstration, with the first card picked."""
    with at_work(folder, "demo", size=Size(112, 72)) as user:
        user.wait_for("Card number")
        user.type("3\r")
    return user


def inspect(folder: Path) -> Terminal:
    """The facts about a tool that ``anabranch inspect`` shows before a call."""
    with at_work(folder, "inspect", "book_flight.py") as user:
        pass
    return user


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
            user = scene(workplace(folder))
            (PICTURES / f"{name}.svg").write_text(draw(user, "anabranch"), encoding="utf-8")
        finally:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()

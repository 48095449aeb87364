"""Shows a chat's replies: as plain text in a file or a pipe, and as Markdown at a terminal."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final, TextIO

from markdown_it import MarkdownIt
from markdown_it.parser_inline import ParserInline
from markdown_it.rules_inline import StateInline
from markdown_it.rules_inline.state_inline import Scanned
from markdown_it.token import Token
from rich.console import Console as RichConsole
from rich.console import ConsoleOptions, Group, RenderableType, RenderResult
from rich.markdown import Markdown
from rich.segment import Segment
from rich.spinner import Spinner
from rich.text import Text

from anabranch._terminal import Console, LiveRegion, is_drawable
from anabranch._text import printable

NO_MODEL = "none"


CLEAR = "\x1b[2J\x1b[H"


class Replies:
    """Writes replies to ``out``, by default ``sys.stdout``."""

    columns: Callable[[], int] | None = None
    """Returns the present width of the terminal, if there is one."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self.in_line: bool = False
        """Whether a reply is arriving."""
        self.running: dict[str, str] = {}
        """The names of the running tools, by the ids of their uses."""

    def turn(self, awaited: str) -> AbstractContextManager[None]:
        del awaited
        return nullcontext()

    def stream(self, text: str) -> None:
        self._write(text)
        self.in_line = True

    def end_line(self) -> None:
        if self.in_line:
            self._write("\n")
            self.in_line = False

    def print(self, text: str, *, markdown: bool = False) -> None:
        del markdown
        self._write(f"{text}\n")

    def clear(self) -> None:
        if is_drawable(self._out):
            self._out.write(CLEAR)
            self._out.flush()

    def _write(self, text: str) -> None:
        self._out.write(printable(text))
        self._out.flush()


_IS_CJK: Final = re.compile(
    "[\u1100-\u11ff\u2e80-\u2fdf\u3001-\u312f\u3131-\u318f\u31a0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc\U00020000-\U0003ffff]"
)


class _State(StateInline):
    def scanDelims(self, start: int, canSplitWord: bool) -> Scanned:  # noqa: N802, N803, FBT001 - overrides
        """Let stars next to CJK letters open and close emphasis as well."""
        found = super().scanDelims(start, canSplitWord)
        end = start + found.length
        before, after = self.src[start - 1 : start], self.src[end : end + 1]
        if self.src[start] == "_":
            return found
        opens = bool(_IS_CJK.match(before)) and bool(after.strip())
        closes = bool(_IS_CJK.match(after)) and bool(before.strip())
        return Scanned(found.can_open or opens, found.can_close or closes, found.length)


class _Inline(ParserInline):
    def parse(self, src: str, md: MarkdownIt, env: Any, tokens: list[Token]) -> list[Token]:  # noqa: ANN401 - overrides
        state = _State(src, md, env, tokens)
        self.tokenize(state)
        for rule in self.ruler2.getRules(""):
            rule(state)
        return state.tokens


def read_markdown(text: str) -> list[Token]:
    parser = MarkdownIt()
    parser.inline = _Inline()
    return parser.enable("strikethrough").enable("table").parse(text)


_FENCE = re.compile(r"^ {0,3}(```|~~~)", re.MULTILINE)
RESERVED = 4
"""Lines of the terminal that an arriving reply leaves free."""


class LiveReplies(Replies):
    def __init__(self, console: Console) -> None:
        super().__init__(console.stream)
        self._region = LiveRegion(console.stream)
        console.region = self._region
        self._reply = ""
        self.in_line: bool = False
        self.columns: Callable[[], int] | None = lambda: self._region.columns

    @contextmanager
    def turn(self, awaited: str) -> Generator[None]:
        began = time.monotonic()
        self.running.clear()
        spinner = Spinner("dots")

        def draw() -> RenderableType:
            names = ", ".join(dict.fromkeys(self.running.values()))
            what = f"running {names}" if names else f"waiting for {awaited}"
            waiting = printable(f"{what} · {time.monotonic() - began:.0f} s · Ctrl-C ends it")
            spinner.update(text=Text(waiting, "dim"))
            return Group(_LastLines(_markdown(self._reply)), spinner) if self._reply else spinner

        with self._region.drawn(draw):
            try:
                yield
            finally:
                self.end_line()

    def stream(self, text: str) -> None:
        whole, self._reply = _blocks(self._reply + text)
        if whole.strip():
            self._region.print(_markdown(whole))
        self.in_line = True

    def end_line(self) -> None:
        rest, self._reply = self._reply, ""
        self.in_line = False
        if rest.strip():
            self._region.print(_markdown(rest))

    def print(self, text: str, *, markdown: bool = False) -> None:
        self._region.print(_markdown(text) if markdown else Text(printable(text)))


class _LastLines:
    """The last lines of a rich renderable, which may be higher than the terminal."""

    def __init__(self, shown: RenderableType) -> None:
        self._shown = shown

    def __rich_console__(self, console: RichConsole, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self._shown, options, pad=False)
        for line in lines[-max(1, console.height - RESERVED) :]:
            yield from line
            yield Segment.line()


def _markdown(text: str) -> Markdown:
    # Without hyperlinks the address is visible: the text of a link may show another address.
    shown = Markdown("", hyperlinks=False)
    shown.markup = printable(text)
    shown.parsed = read_markdown(shown.markup)
    return shown


def _blocks(text: str) -> tuple[str, str]:
    end = text.rfind("\n\n")
    while end >= 0:
        if len(_FENCE.findall(text[:end])) % 2 == 0:
            return text[: end + 2], text[end + 2 :]
        end = text.rfind("\n\n", 0, end)
    return "", text

"""The output of commands: results on stdout, without terminal control sequences, and warnings."""

from __future__ import annotations

import os
import re
import sys
import threading
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, redirect_stdout
from io import TextIOBase
from typing import BinaryIO, NoReturn, TextIO

from anabranch._terminal import FailedError, UsageError
from anabranch._text import printable, printable_json
from anabranch.errors import is_authors


def print_either(value: object, lines: Sequence[str], *, as_json: bool = False) -> None:
    if as_json or not sys.stdout.isatty():
        print_json(value)
    else:
        print_text("\n".join(lines))


def print_json(value: object) -> None:
    encodable = sys.stdout.encoding.lower().replace("-", "") == "utf8"
    _print(printable_json(value, ascii_only=not encodable))


def print_text(text: str) -> None:
    _print(printable(text))


def _print(text: str) -> None:
    encoding = sys.stdout.encoding
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")


def counted(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


async def confirm(losses: str, question: str, otherwise: str, *, yes: bool) -> None:
    if yes:
        return
    from anabranch._terminal import Console, ask_consent

    console = Console()
    if not console.interactive:
        act = question.removesuffix("?").lower()
        raise UsageError(f"{losses} There is no terminal to ask at: give --yes to {act}.")
    async with console.question():
        console.show(losses)
        if (await ask_consent(question)).action != "accept":
            raise FailedError(otherwise)


def cut_off(why: str) -> NoReturn:
    from anabranch._terminal import Console

    Console().say(why)
    os._exit(FailedError.status)


def cut_off_after(seconds: float, why: str, act: Callable[[str], object] = cut_off) -> None:
    """End the process after ``seconds``, even if a thread, which cannot be cancelled, still runs."""
    bound = threading.Timer(min(seconds, threading.TIMEOUT_MAX), act, [why])
    bound.daemon = True
    bound.start()


WARNING = (
    "Standard output carries the protocol, so the server's prints appear here. Print to stderr, or"
    " use"
    " ctx.log, which reaches the client.\n"
)


class _Printed(TextIOBase):
    """Replaces stdout: sends prints to stderr, with a warning; the server uses ``buffer``."""

    def __init__(self, buffer: BinaryIO) -> None:
        self.buffer = buffer
        self._warned = False

    def write(self, text: str, /) -> int:
        if not self._warned:
            self._warned = True
            sys.stderr.write(WARNING)
        sys.stderr.write(text)
        sys.stderr.flush()
        return len(text)


@contextmanager
def protocol_on_stdout() -> Generator[None]:
    with redirect_stdout(_Printed(sys.stdout.buffer)):
        yield


@contextmanager
def prints_on_stderr() -> Generator[None]:
    """Send what the block prints to stderr, also from native libraries and from other processes."""
    try:
        kept = os.dup(1)
    except OSError:  # the process has no stdout
        kept = None
    try:
        with redirect_stdout(sys.stderr):
            if kept is not None:
                os.dup2(2, 1)
            yield
    finally:
        if kept is not None:
            os.dup2(kept, 1)
            os.close(kept)


DEPTH = 4
"""Recorded frames of a place: at most three lie between an operation and the author's line."""
_FRAME = re.compile(r'  File "([^"]+)", line \d+.*\n(?:    .*\n?)*')


def name_forgotten_awaits() -> None:
    """Make Python's warnings of never awaited operations name the author's line.

    Calls of coroutine functions take longer then, so only commands for authors use this.
    """
    sys.set_coroutine_origin_tracking_depth(DEPTH)
    usual = warnings.showwarning

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        text = str(message)
        if "was never awaited" not in text:
            usual(message, category, filename, lineno, file, line)
            return
        own = _FRAME.sub(lambda frame: frame[0] if is_authors(frame[1]) else "", text)
        (file or sys.stderr).write(f"{category.__name__}: {own.rstrip()}\n")

    warnings.showwarning = show

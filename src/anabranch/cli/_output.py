"""Prints the result of a command on stdout, as JSON or text, without terminal control sequences."""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager, redirect_stdout
from io import TextIOBase
from typing import BinaryIO

from anabranch._terminal import FailedError, UsageError
from anabranch._text import printable, printable_json


def print_either(value: object, lines: Sequence[str], *, as_json: bool = False) -> None:
    """Print ``lines`` at a terminal; elsewhere, or ``as_json``, ``value``."""
    if as_json or not sys.stdout.isatty():
        print_json(value)
    else:
        print_text("\n".join(lines))


def print_json(value: object) -> None:
    """Print ``value`` as indented JSON; characters that stdout cannot encode are escaped."""
    encodable = sys.stdout.encoding.lower().replace("-", "") == "utf8"
    _print(printable_json(value, ascii_only=not encodable))


def print_text(text: str) -> None:
    """Print ``text``, made printable; characters that stdout cannot encode are escaped."""
    _print(printable(text))


def _print(text: str) -> None:
    encoding = sys.stdout.encoding
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")


async def confirm(losses: str, question: str, otherwise: str, *, yes: bool) -> None:
    """Show the loss, and return if the user agrees to it.

    Raises:
        UsageError: if there is no terminal to ask at.
        FailedError: if the user declines; the error says ``otherwise``.
    """
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


WARNING = (
    "Standard output is the protocol's: what the server prints is shown here. Print to stderr, or use"
    " ctx.log, which reaches the client.\n"
)


class _Printed(TextIOBase):
    """Writes to stderr without a buffer, after one warning; the SDK's server takes ``buffer``."""

    def __init__(self, buffer: BinaryIO) -> None:
        self.buffer = buffer
        self._warned = False

    def write(self, text: str, /) -> int:
        """Write ``text`` to stderr."""
        if not self._warned:
            self._warned = True
            sys.stderr.write(WARNING)
        sys.stderr.write(text)
        sys.stderr.flush()
        return len(text)


@contextmanager
def protocol_on_stdout() -> Generator[None]:
    """Send prints inside the block to stderr; a server that starts there gets stdout."""
    with redirect_stdout(_Printed(sys.stdout.buffer)):
        yield

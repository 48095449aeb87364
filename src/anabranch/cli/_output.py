"""The result of a command on stdout, as JSON or as text, without what a terminal would obey."""

from __future__ import annotations

import sys
from collections.abc import Sequence

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

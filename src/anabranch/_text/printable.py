"""Makes foreign text printable: on a terminal, and in a log.

A text is foreign if this library did not write it: text of a server, model, client, user or file.
Inside the process a text stays unchanged; it changes only on its way out. ``encodable.py`` prepares
texts for a wire. This module imports nothing that is slow to load, for commands that only print.
"""

from __future__ import annotations

import json
import logging
import re
from textwrap import indent
from typing import Any, Literal, TypeAlias

from anabranch.errors import format_for_author

LogFormat: TypeAlias = Literal["text", "json"]
"""The format of log records."""

_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # controls C0 and C1, but for tabs and line breaks
    "\u00ad\u061c\u180e\u2028\u2029\ufeff"  # soft hyphen, marks and breaks that are not visible
    "\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f"  # zero width, direction
    "\ufff9-\ufffb\U000e0000-\U000e007f"  # annotations, tags
    "\ud800-\udfff]"  # halves of a pair
    # joiners, but for those that emoji and several scripts need: between characters beyond ASCII
    "|(?<![^\x00-\x7f])[\u200c\u200d]|[\u200c\u200d](?![^\x00-\x7f])"
)


def printable(text: str) -> str:
    """Return ``text`` without characters that a reader cannot see or a terminal would obey.

    U+FFFD replaces control characters except tabs and line breaks, characters that change the
    direction of text or have no width, and lone surrogates.
    """
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


def printable_line(text: str) -> str:
    r"""Return ``text`` as :func:`printable` does, in one line: a line break is shown as ``\n``."""
    return printable(text).replace("\n", "\\n")


def printable_json(value: object, *, ascii_only: bool = False) -> str:
    """Return ``value`` as indented JSON, with unprintable characters escaped."""
    text = json.dumps(value, indent=2, ensure_ascii=ascii_only)
    return _UNPRINTABLE.sub(lambda found: json.dumps(found[0])[1:-1], text)


class PrintableFormatter(logging.Formatter):
    """Formats a log record as one printable line, followed by the indented lines of its traceback.

    So a text in the record, from a header or an exception, cannot look like another record.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the base class
        """Return the record's line."""
        return printable_line(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802, ANN401 - the base class
        """Return the lines of the traceback that are useful to a tool's author."""
        return indent(printable(format_for_author(*ei).rstrip("\n")), "    ")

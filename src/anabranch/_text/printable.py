"""Foreign text made printable: on a terminal, in a log.

Foreign is every text that this library did not write: a server's, a model's, a client's, a person's,
a file's. Inside the process it stays as it is; it is changed only on its way out. What a wire needs
is in ``_encodable``. Nothing is imported that is slow to load, for the commands that only print.
"""

from __future__ import annotations

import json
import logging
import re
from textwrap import indent
from typing import Any, Literal, TypeAlias

from anabranch.errors import format_for_author

LogFormat: TypeAlias = Literal["text", "json"]
"""How log records are written."""

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
    """Return ``text`` with what a reader cannot see, or a terminal would obey, replaced.

    Replaced are control characters except tabs and line breaks, characters that change the
    direction of text or have no width, and lone surrogates.
    """
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


def printable_line(text: str) -> str:
    r"""Return ``text`` as :func:`printable` does, in one line: a line break is shown as ``\n``."""
    return printable(text).replace("\n", "\\n")


def printable_json(value: object, *, ascii_only: bool = False) -> str:
    """Return ``value`` as indented JSON in which all that is not printable is escaped."""
    text = json.dumps(value, indent=2, ensure_ascii=ascii_only)
    return _UNPRINTABLE.sub(lambda found: json.dumps(found[0])[1:-1], text)


class PrintableFormatter(logging.Formatter):
    """Formats a log record as one printable line; those of its traceback are indented.

    So a text in it, from a header or an exception, cannot look like another record.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the base class
        """Return the record's line."""
        return printable_line(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802, ANN401 - the base class
        """Return the lines of the traceback, as far as they are of use to a tool's author."""
        return indent(printable(format_for_author(*ei).rstrip("\n")), "    ")

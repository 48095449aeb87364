"""Foreign texts on their way out: encodable for a wire, printable on a terminal and in a log.

A text is foreign if this library did not write it. No import here is slow, for commands that only
print.
"""

from __future__ import annotations

import base64
import json
import logging
import re
from dataclasses import fields, is_dataclass, replace
from textwrap import indent
from typing import Any, Literal, TypeAlias, TypeVar, cast

from anabranch.errors import format_for_author

T = TypeVar("T")


def encodable(value: T) -> T:
    r"""Return ``value`` with each lone surrogate in its texts escaped, as ``\udce9``, and other bytes as base64.

    A file name that is not UTF-8 has lone surrogates, and UTF-8, which every wire speaks, has none. An
    encodable value is returned unchanged.
    """
    # Imported here, so that a command that only prints its help does not load pydantic.
    from pydantic_core import PydanticSerializationError, to_json  # noqa: PLC0415

    try:
        to_json(value)
    except (PydanticSerializationError, UnicodeEncodeError, ValueError, RecursionError):
        return cast("T", _escaped(value))
    return value


def _escaped(value: Any) -> Any:  # noqa: ANN401 - as encodable
    from pydantic import BaseModel  # noqa: PLC0415 - as encodable

    made: Any = value
    if isinstance(value, str):
        made = value.encode("utf-8", "backslashreplace").decode()
    elif isinstance(value, bytes | bytearray):
        made = _text_of(bytes(value))
    elif isinstance(value, dict):
        items = cast("Any", value).items()
        made = {_escaped(key): _escaped(item) for key, item in items}
    elif type(value) in (list, tuple):
        made = type(value)(map(_escaped, value))
    elif isinstance(value, BaseModel):
        made = value.model_copy(update={name: _escaped(item) for name, item in value})
    elif is_dataclass(value) and not isinstance(value, type):
        shown = {each.name: getattr(value, each.name) for each in fields(value) if each.init}
        made = replace(value, **{name: _escaped(item) for name, item in shown.items()})
    return made


def _text_of(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return base64.b64encode(data).decode()


MARKS = frozenset("/~#<>")
"""Characters that no name of a question, step or branch contains.

The ids of steps consist of names and of the first three; Python writes nameless functions in angle
brackets. A name with one of them could be confused with a generated id.
"""


def checked_name(name: str, what: str = "name") -> str:
    """Return ``name`` if it is a valid ``what``, such as a key; otherwise raise ``ValueError``."""
    if not name or MARKS & set(name):
        raise ValueError(f"A {what} must not be empty or contain any of / ~ # < >, got {name!r}")
    if encodable(name) != name:
        raise ValueError(f"A {what} must be Unicode text, without lone surrogates, got {name!r}")
    return name


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
    """Return ``text`` with U+FFFD for characters that a reader cannot see or a terminal would obey."""
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


def printable_line(text: str) -> str:
    r"""Return ``text`` as :func:`printable` does, in one line: a line break is shown as ``\n``."""
    return printable(text).replace("\n", "\\n")


def printable_json(value: object, *, ascii_only: bool = False) -> str:
    """Return ``value`` as indented JSON, with unprintable characters escaped."""
    return _readable(json.dumps(value, indent=2, ensure_ascii=ascii_only))


def json_line(value: object) -> str:
    """Return ``value`` as JSON in one line for a reader, with unprintable characters escaped."""
    return _readable(json.dumps(value, ensure_ascii=False))


def _readable(text: str) -> str:
    return _UNPRINTABLE.sub(lambda found: json.dumps(found[0])[1:-1], text)


class PrintableFormatter(logging.Formatter):
    """Formats a log record as one printable line, followed by its indented traceback.

    So a text in the record, from a header or an exception, cannot look like another record.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the base class
        return printable_line(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802, ANN401 - the base class
        """Return the lines of the traceback that are useful to a tool's author."""
        return indent(printable(format_for_author(*ei).rstrip("\n")), "    ")

"""The text form of a journal, which travels between rounds: JSON in two parts, one compressed.

Compressing the client's answers and the server's values together would let a client guess, and
learn the server's secrets from the length of the sealed state (the CRIME attack):
test_the_length_does_not_depend_on_whether_an_answer_repeats_a_secret.
"""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

from pydantic_core import from_json, to_json

from anabranch._engine.pinning import LENGTH


def render(private: list[Any], public: list[Any]) -> str:
    """Return the text of both parts; empty values at the end of ``private`` are left out."""
    while not private[-1]:
        private.pop()
    return f"{_deflated(_to_json(public))} {_to_json(private).decode('ascii')}"


def parse(text: str, version: int, limit: int = 0) -> tuple[list[Any], list[Any]]:
    """Return the private part of ``text``, without the format's version, and the public part."""
    packed, _, private = text.partition(" ")
    try:
        found, *fields = _from_json(private)
        if found != version:
            raise ValueError(f"journal format {found}, this release reads {version}")
        return fields, _from_json(inflated(packed, limit))
    except (TypeError, zlib.error) as problem:
        raise ValueError(
            f"the stored text is not a journal that this release can read: {problem}"
        ) from problem


def joined(prints: list[str]) -> str | list[str]:
    """Return the fingerprints as one text if all have the usual length, else the list."""
    return "".join(prints) if _ONE_LENGTH.issuperset(map(len, prints)) else prints


def split(prints: str | list[str]) -> list[str]:
    if isinstance(prints, list):
        return prints
    return [prints[start : start + LENGTH] for start in range(0, len(prints), LENGTH)]


def shorten_ids(rows: list[list[Any]]) -> None:
    """Replace the id of each row by 0 if its number follows that of the row before."""
    name, number = "", 0
    for row in rows:
        if row[0] == f"{name}{number + 1}":
            row[0] = 0
            number += 1
        else:
            name, number = _counted(row[0])


def restore_ids(rows: list[list[Any]]) -> None:
    name, number = "", 0
    for row in rows:
        if row[0] == 0:
            number += 1
            row[0] = f"{name}{number}"
        else:
            name, number = _counted(row[0])


def _counted(step_id: str) -> tuple[str, int]:
    """Return ``step_id`` without its final number, and that number (0 without one)."""
    name = step_id.rstrip("0123456789")
    return name, int(step_id[len(name) : len(name) + 9] or 0)  # a key may be a long number


_DICTIONARY = (
    b'"cancel""decline""sample"{"role":"assistant","content":[{"type":"text","text":""}],"model":""'
    b',"stop_reason":"endTurn"}]]["/elicit.1","elicit",{"action":"accept","content":{"'
)
"""Deflate's preset dictionary: text of most journals, and so a part of the format."""

_SMALL = 4096
_ONE_LENGTH = frozenset({LENGTH})


def _deflated(text: bytes) -> str:
    # A small state is not worth the memory that would have to be cleared for a big one.
    memory = 4 if len(text) < _SMALL else 9
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15, memory, zdict=_DICTIONARY)
    return base64.b64encode(deflate.compress(text) + deflate.flush()).decode()


def inflated(packed: str, limit: int = 0) -> bytes:
    """Return the JSON of a journal text's public part; refuse to inflate more than ``limit`` bytes."""
    inflate = zlib.decompressobj(-15, zdict=_DICTIONARY)
    text = inflate.decompress(base64.b64decode(packed), limit)
    # A small state could inflate until the memory is full: test_inflation_stops_at_the_limit.
    if inflate.unconsumed_tail:
        raise ValueError(f"it inflates to more than {limit} bytes")
    return text


def exceeds(text: str, limit: int) -> bool:
    """Whether ``text`` is longer than ``limit`` once its public part is inflated."""
    packed, _, private = text.partition(" ")
    if len(text) > limit or len(private) >= limit:
        return True
    try:
        return len(inflated(packed, limit)) + len(private) > limit
    except ValueError:
        return True


def size(value: object) -> int:
    return len(_to_json(value))


_dumps = json.JSONEncoder(separators=(",", ":")).encode


def _to_json(value: object) -> bytes:
    """Return ``value`` as JSON in ASCII, which every transport accepts."""
    try:
        text = to_json(value)
    except ValueError:  # nested deeply, or half of a surrogate pair: rare, and no reason to fail
        text = b""
    return text if text and text.isascii() else _dumps(value).encode()


def _from_json(text: str | bytes) -> Any:  # noqa: ANN401 - any JSON
    try:
        return from_json(text)
    except ValueError:  # as above
        return json.loads(text)

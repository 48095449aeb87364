"""JSON texts from outside, read with one kind of error for whatever is wrong with them.

``json`` raises ``RecursionError`` for a text that is nested too deeply, and pydantic and the protocol
refuse to send what is nested a little less.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

__all__ = ["DEEPEST", "TooDeepError", "read_json", "read_json_at"]

DEEPEST = 100
"""Lists and objects within each other; what is in them is enclosed in messages, too."""

_DECODER = json.JSONDecoder()


class TooDeepError(ValueError):
    """A text is nested too deeply."""

    def __init__(self) -> None:
        super().__init__(f"it is nested too deeply, more than {DEEPEST} lists and objects deep")


def read_json(text: str) -> Any:  # noqa: ANN401 - whatever is written there
    """Return what ``text`` says.

    Raises:
        ValueError: it is not JSON; a ``TooDeepError``, if it is nested too deeply.
    """
    try:
        return _checked(json.loads(text))
    except RecursionError:
        raise TooDeepError from None


def read_json_at(text: str, at: int) -> tuple[Any, int]:
    """Return the value that begins at ``at``, and where it ends; raises as :func:`read_json`."""
    try:
        value, end = _DECODER.raw_decode(text, at)
    except RecursionError:
        raise TooDeepError from None
    return _checked(value), end


def _checked(value: object) -> object:
    level: list[Any] = [value]
    for _ in range(DEEPEST + 1):
        level = [each for each in level if isinstance(each, list | dict)]
        if not level:
            return value
        level = [inner for each in level for inner in _inside(each)]
    raise TooDeepError


def _inside(value: list[Any] | dict[str, Any]) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value

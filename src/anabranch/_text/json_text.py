"""JSON from outside: reads texts with one kind of error for every fault, and checks numbers.

``json`` raises ``RecursionError`` for a text that is nested too deeply. pydantic and the protocol
refuse to send a text that is nested a little less. Other parsers accept numbers that Python does
not write: infinite numbers, or numbers of thousands of digits.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable
from typing import Any

DEEPEST = 100
"""Maximum depth of lists and objects; messages add further levels."""

_DIGITS = sys.int_info.default_max_str_digits
_TOO_LONG = 10**_DIGITS

_PLAIN = {str, int, float, bool, type(None)}

_DECODER = json.JSONDecoder()


class TooDeepError(ValueError):
    """A text is nested too deeply."""

    def __init__(self) -> None:
        super().__init__(f"it is nested too deeply, more than {DEEPEST} lists and objects deep")


def read_json(text: str) -> Any:  # noqa: ANN401 - whatever is written there
    """Return the value of ``text``.

    Raises:
        ValueError: if ``text`` is not JSON; a ``TooDeepError`` if it is nested too deeply.
    """
    try:
        return _checked(json.loads(text))
    except RecursionError:
        raise TooDeepError from None


def read_json_at(text: str, at: int) -> tuple[Any, int]:
    """Return the value that begins at ``at``, and the position after it; raises as :func:`read_json`."""
    try:
        value, end = _DECODER.raw_decode(text, at)
    except RecursionError:
        raise TooDeepError from None
    return _checked(value), end


def number_problem(value: object) -> str | None:
    """Return the problem of a number in ``value``, which is JSON; ``None`` if all can be written."""
    level: list[Any] = [value]
    while level:  # each step in C, since a level may have millions of parts
        kinds = {*map(type, level)}
        floats = [each for each in level if type(each) is float] if float in kinds else []
        if not all(map(math.isfinite, floats)):
            return "NaN and Infinity are no numbers of JSON"
        whole = [each for each in level if type(each) is int] if int in kinds else []
        if whole and (max(whole) >= _TOO_LONG or min(whole) <= -_TOO_LONG):
            return f"a number has at most {_DIGITS} digits"
        nested: list[Any] = (
            [each for each in level if isinstance(each, list | dict)] if kinds - _PLAIN else []
        )
        level = [inner for each in nested for inner in _inside(each)]
    return None


def require_shallow(value: object) -> None:
    """Check the depth of ``value``, which is JSON.

    Raises:
        TooDeepError: if ``value`` is nested too deeply.
    """
    _checked(value)


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

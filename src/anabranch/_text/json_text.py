"""JSON from outside, read with one kind of error for every fault, and found in the replies of models.

``json`` raises ``RecursionError`` for a text that is nested too deeply; pydantic and the protocol
refuse a text that is nested a little less. Models put a polite sentence before their answer, a fence
around it, and their thinking above it.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Iterator
from itertools import chain, compress
from pathlib import Path
from typing import Any, TypeVar, cast

from anabranch._text.media_types import decoded

DEEPEST = 100
"""Maximum depth of lists and objects; messages add further levels."""

_DIGITS = sys.int_info.default_max_str_digits
_TOO_LONG = 10**_DIGITS

_DECODER = json.JSONDecoder()


class TooDeepError(ValueError):
    def __init__(self) -> None:
        super().__init__(f"it is nested too deeply, more than {DEEPEST} lists and objects deep")


def read_json(text: str) -> Any:  # noqa: ANN401 - any JSON
    """Return the value of ``text``, or raise ``ValueError``; ``TooDeepError`` for deep nesting."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise TooDeepError from None
    require_shallow(value)
    return value


def read_json_list(path: Path, name: str, error: type[Exception]) -> list[Any]:
    """Return the list in the JSON file ``path``; an ``error`` calls the file ``name``, and its path."""
    try:
        value: object = read_json(decoded(path.read_bytes()))
    except OSError as problem:
        raise error(
            f"Cannot read the {name} {path}: {problem.strerror}. Check the path."
        ) from problem
    except ValueError as problem:
        raise error(f"The {name} {path} is not JSON: {problem}.") from problem
    if not isinstance(value, list):
        raise error(f"The {name} {path} must be a JSON list.")
    return cast("list[object]", value)


def read_json_at(text: str, at: int) -> tuple[Any, int]:
    try:
        value, end = _DECODER.raw_decode(text, at)
    except RecursionError:
        raise TooDeepError from None
    require_shallow(value)
    return value, end


def number_problem(value: object) -> str | None:
    """Return the problem of a number in ``value`` that JSON cannot write, or ``None``."""
    for level in _levels(value):
        if not all(map(math.isfinite, _of({float}, level))):
            return "NaN and Infinity are no numbers of JSON"
        whole = _of({int}, level)
        if whole and (max(whole) >= _TOO_LONG or min(whole) <= -_TOO_LONG):
            return f"a number has at most {_DIGITS} digits"
    return None


def require_shallow(value: object) -> None:
    for depth, level in enumerate(_levels(value)):
        if depth == DEEPEST and any(issubclass(kind, dict | list) for kind in {*map(type, level)}):
            raise TooDeepError


def _levels(value: object) -> Iterator[list[Any]]:
    """Yield all parts of ``value``, level by level; in C, since a level may have millions."""
    level: list[Any] = [value]
    while level:
        yield level
        kinds = {*map(type, level)}
        objects = _of({kind for kind in kinds if issubclass(kind, dict)}, level)
        lists = _of({kind for kind in kinds if issubclass(kind, list)}, level)
        level = [*chain.from_iterable(chain(map(dict[Any, Any].values, objects), lists))]


def _of(kinds: set[type], level: list[Any]) -> list[Any]:
    """Return the values in ``level`` of exactly these types."""
    if kinds.isdisjoint(map(type, level)):
        return []
    return [*compress(level, map(kinds.__contains__, map(type, level)))]


T = TypeVar("T")

_THINKING = r"think|thinking|thought|thoughts|reasoning"
_THINKS = re.compile(rf"\s*<(?:{_THINKING})>", re.IGNORECASE)
_THOUGHT = re.compile(rf"</(?:{_THINKING})>", re.IGNORECASE)
_OPENING = re.compile(r"[{\[]")
_TOKEN = re.compile(
    r"[ \t\n\r]*+(?:(?P<opens>[{\[])|(?P<closes>[}\]])|[,:]"
    r'|"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"'
    r"|[-+.0-9eE]++|true|false|null|NaN|-?Infinity)"
)
_SPACE = re.compile(r"[ \t\n\r]*+")
_PAIRS = {"{": "}", "[": "]"}


def answer_in(text: str, read: Callable[[str], T]) -> T:
    """Return the one JSON value in a reply that ``read`` accepts.

    A value outside of lists and objects is found only if it stands alone or in a fence.

    Raises:
        ValidationError: if ``read`` accepts no value; the error for the longest value, if there is one.
        ValueError: if ``read`` accepts two different values.
    """
    # Imported here, so that a command that only prints its help does not load pydantic.
    from pydantic import ValidationError  # noqa: PLC0415

    try:
        return read(text.strip())
    except ValidationError as problem:
        refused = problem
    fitting: list[T] = []
    longest = 0
    for part in _parts(text):
        try:
            value = read(part)
        except ValidationError as problem:
            if len(part) > longest:
                longest, refused = len(part), problem
            continue
        if value not in fitting:
            fitting.append(value)
        if len(fitting) > 1:
            raise ValueError("the reply has several answers, and they differ")
    if not fitting:
        raise refused
    return fitting[0]


def _parts(text: str) -> list[str]:
    """Return the JSON values after the model's thinking, or else all in the reply."""
    *_, end = [0, *(found.end() for found in _THOUGHT.finditer(text))]
    if not end and _THINKS.match(text):
        return []  # the reply was cut before its answer
    return _values(text[end:]) or (_values(text) if end else [])


def _values(said: str) -> list[str]:
    return list(_nested(said)) or [part for part in _fenced(said) if _is_json(part)]


def _nested(said: str) -> Iterator[str]:
    """Yield the outermost lists and objects, each as its text, in time linear in the length.

    A beginning that is cut off, or that turns out to be prose, is skipped up to the fault.
    """
    opening = _OPENING.search(said)
    while opening is not None:
        start, end, is_whole = opening.start(), opening.start(), False
        waiting: list[str] = []
        while (token := _TOKEN.match(said, end)) is not None:
            end = token.end()
            if (opened := token["opens"]) is not None:
                waiting.append(_PAIRS[opened])
            elif (closed := token["closes"]) is not None and waiting.pop() != closed:
                break
            if not waiting:
                is_whole = True
                break
        if is_whole and _is_json(said[start:end]):
            yield said[start:end]
        opening = _OPENING.search(said, end if token else _after_fault(said, end))


def _after_fault(said: str, end: int) -> int:
    """Return the position after an invalid token: for an unclosed string, the end of its line."""
    space = _SPACE.match(said, end)
    fault = space.end() if space else end
    if not said.startswith('"', fault):
        return fault
    line = said.find("\n", fault)
    return len(said) if line < 0 else line


def _fenced(said: str) -> Iterator[str]:
    """Yield the content of each code fence, without the language after the opening fence."""
    for part in said.split("```")[1::2]:
        first, _, rest = part.partition("\n")
        yield (rest if first.strip().isalpha() and rest.strip() else part).strip()
        yield part.strip().removeprefix("json").strip()


def _is_json(text: str) -> bool:
    from pydantic_core import from_json  # noqa: PLC0415 - as answer_in

    try:
        from_json(text)
    except ValueError:
        return False
    return True

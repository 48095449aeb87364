"""Finds the JSON answer in a model's reply, whatever text surrounds it.

Models put a polite sentence before their answer, a fence around it, and their thinking above it.
The time is linear in the length of the reply.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TypeVar

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

    Args:
        text: the reply.
        read: returns the value of a JSON text, or raises a ``ValidationError``.

    Raises:
        ValidationError: if ``read`` accepts no value; the error for the longest value, if there is
            one.
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
    """Return the JSON values after the thinking; if there are none, those in the whole reply."""
    *_, end = [0, *(found.end() for found in _THOUGHT.finditer(text))]
    if not end and _THINKS.match(text):
        return []  # the reply was cut before its answer
    return _values(text[end:]) or (_values(text) if end else [])


def _values(said: str) -> list[str]:
    return list(_nested(said)) or [part for part in _fenced(said) if _is_json(part)]


def _nested(said: str) -> Iterator[str]:
    """Yield the outermost lists and objects, each as its text.

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
    """Return the position after an invalid token: the end of the line, if a text is not closed in it."""
    space = _SPACE.match(said, end)
    fault = space.end() if space else end
    if not said.startswith('"', fault):
        return fault
    line = said.find("\n", fault)
    return len(said) if line < 0 else line


def _fenced(said: str) -> Iterator[str]:
    """Yield the contents of fences, without the language after an opening fence."""
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

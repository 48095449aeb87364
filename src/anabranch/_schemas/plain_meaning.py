"""Converts arguments that a caller wrote in another type than the schema asks for."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any, cast

from pydantic_core import ErrorDetails

from anabranch._text import read_json


def as_meant(
    given: dict[str, Any], problems: Iterable[ErrorDetails]
) -> tuple[dict[str, Any], set[tuple[int | str, ...]]]:
    """Return ``given`` with problems converted where possible, and the places that were left out."""
    meant, left_out = copy.deepcopy(given), set[tuple[int | str, ...]]()
    for problem in problems:
        holder, place, value = _found(meant, problem["loc"])
        if holder is None:
            continue
        if isinstance(value, str) and value:
            holder[place] = _decoded(value, is_choice=problem["type"] in _CHOICES)
        elif type(value) in (int, float) and problem["type"] == "string_type":
            holder[place] = str(value)
        elif value in (None, "") and isinstance(holder, dict):
            del holder[place]
            left_out.add(problem["loc"])
    return meant, left_out


def _found(given: object, loc: Iterable[int | str]) -> tuple[Any, Any, object]:
    """Return the container, the key and the value at the place of a problem.

    A union adds a tag to the place, which is not a key of the value.
    """
    holder: Any = None
    place: Any = None
    value: object = given
    for step in loc:
        if not isinstance(value, dict | list):
            break
        inside = cast("Any", value)
        try:
            value = inside[step]
        except (KeyError, IndexError, TypeError):
            continue
        holder, place = inside, step
    return holder, place, cast("Any", value)


_CHOICES = frozenset({"literal_error", "enum"})


def _decoded(text: str, *, is_choice: bool) -> object:
    """Return the list, object, null or chosen number that a text holds as JSON; else the text."""
    try:
        decoded: object = read_json(text)
    except ValueError:
        return text
    if isinstance(decoded, str) or (isinstance(decoded, int | float) and not is_choice):
        return text
    return decoded

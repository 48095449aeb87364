"""The arguments that a model gives to a tool of another server, as the server's schema takes them."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final, TypeAlias, cast

from anabranch._schemas import misfits

Place: TypeAlias = tuple[str | int, ...]

MOST_NULLS: Final = 100
"""Nulls of one call that may be left out: for each, the arguments are compared with the schema."""


def without_foreign_nulls(
    schema: Mapping[str, Any], arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """Return ``arguments`` without the nulls of optional properties whose schema has no null.

    Models write a null for a parameter that they leave out. The null of a required property stays,
    so that the server says what it needs.
    """
    meant = copy.deepcopy(dict(arguments))
    nulls = list(islice(_nulls(meant, ()), MOST_NULLS))
    if not nulls:
        return meant
    wrong = len(misfits(schema, meant))
    for place in nulls:
        if not wrong:
            break
        trial = copy.deepcopy(meant)
        _remove(trial, place)
        if (left := len(misfits(schema, trial))) < wrong:
            meant, wrong = trial, left
    return meant


def _nulls(value: object, place: Place) -> Iterator[Place]:
    """Yield the places of the nulls that are properties of objects."""
    if isinstance(value, dict):
        for name, part in cast("dict[str, object]", value).items():
            if part is None:
                yield (*place, name)
            else:
                yield from _nulls(part, (*place, name))
    elif isinstance(value, list):
        for number, part in enumerate(cast("list[object]", value)):
            yield from _nulls(part, (*place, number))


def _remove(arguments: Any, place: Place) -> None:  # noqa: ANN401 - JSON
    holder = arguments
    for step in place[:-1]:
        holder = holder[step]
    del holder[place[-1]]

"""The names of branches and steps: as an author gives them, or as their functions are called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["checked_name", "name_for"]

_MARKS = frozenset("/~#<>")
"""What the ids of steps are built with, and what Python calls nameless functions with."""


def name_for(fn: Callable[..., Any], given: str | None, default: str) -> str:
    """Return the name of a branch or a step: as given, or the function's own if it has one.

    Raises:
        ValueError: as :func:`checked_name`.
    """
    if given is not None:
        return checked_name(given)
    own: object = getattr(fn, "__name__", None)
    if not isinstance(own, str):
        return default
    return own if own.isidentifier() or (own and not _MARKS & set(own)) else default


def checked_name(name: str) -> str:
    """Return ``name``.

    Raises:
        ValueError: it is empty, or has a character that ids are built with.
    """
    if not name or _MARKS & set(name):
        raise ValueError(f"A name must not be empty or contain any of / ~ # < >, got {name!r}")
    return name

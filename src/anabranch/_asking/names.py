"""The names of steps and branches: the author's, or those of the functions that they run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anabranch._text import MARKS, checked_name


def checked_key(key: str | None) -> str | None:
    """Return the ``key=`` of a question, if there is one.

    Raises:
        ValueError: as :func:`~anabranch._text.names.checked_name`.
    """
    return None if key is None else checked_name(key, "key")


def name_for(fn: Callable[..., Any], given: str | None, default: str) -> str:
    """Return the name of a branch or a step: as given, or the function's own if it has one.

    Raises:
        ValueError: as :func:`~anabranch._text.names.checked_name`.
    """
    if given is not None:
        return checked_name(given)
    own: object = getattr(fn, "__name__", None)
    if not isinstance(own, str):
        return default
    return own if own.isidentifier() or (own and not MARKS & set(own)) else default

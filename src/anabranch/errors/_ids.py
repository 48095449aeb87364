"""Ids of unexpected errors: the caller sees the id in place of the error's text, and the log has both.

An error keeps its id. Standard library only.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from typing import TypeVar

_NAME = "__anabranch_id__"
E = TypeVar("E", bound=BaseException)


def error_id(error: BaseException) -> str:
    """Return the id of an error, eight hexadecimal digits."""
    known = getattr(error, _NAME, None)
    return known if isinstance(known, str) and known else _named(error, secrets.token_hex(4))


def with_error_id(error: E, known: str) -> E:
    """Return ``error``, with the id that it had before it was stored."""
    _named(error, known)
    return error


def masked(what: str, error: BaseException) -> str:
    """Return the text for the caller of an unexpected error: ``what`` happened, and the id."""
    return f"{what} (error {error_id(error)})"


def _named(error: BaseException, name: str) -> str:
    with suppress(AttributeError, TypeError):  # an error with slots gets another id each time
        setattr(error, _NAME, name)
    return name

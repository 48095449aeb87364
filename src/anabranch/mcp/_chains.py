"""Chains of rounds: how many a client allows in one request, and how a continued one is marked.

The state of a chain that another tool has begun for a call (``_continue_tools.py``) starts with ``+``, the
number of the call's round at which the chain began, and a space.
"""

from __future__ import annotations

from typing import Final

from anabranch.errors import InvalidTokenError

CHAIN: Final = 10
"""Rounds of questions in one chain: known clients answer ten, and take an eleventh reply."""

_MARK = "+"


def marked(state: str, begins: int) -> str:
    """Return ``state`` marked for a chain that began at round ``begins``."""
    return f"{_MARK}{begins} {state}"


def unmarked(state: str) -> tuple[int, str]:
    """Return the round at which the chain of a marked state began, and the state itself.

    Raises:
        InvalidTokenError: it has no mark, or a malformed one.
    """
    begins, _, rest = state.removeprefix(_MARK).partition(" ")
    if not (state.startswith(_MARK) and begins.isdecimal()):
        raise InvalidTokenError
    return int(begins), rest

"""Chains of rounds: how many a client allows in one request, and how a continued one is marked.

The state of a chain that ``continue_call`` has begun starts with ``+``, the number of the call's
round at which the chain began, and a space.
"""

from __future__ import annotations

import inspect
from typing import Any, Final

from anabranch.errors import InvalidTokenError, ToolError
from anabranch.tool import Tool

__all__ = ["CHAIN", "CONTINUE_CALL", "chain_end", "is_marked", "marked", "unmarked"]

CONTINUE_CALL: Final = "continue_call"

CHAIN: Final = 10
"""Rounds of questions in one chain: known clients answer ten, and take an eleventh reply."""

_MARK = "+"


def is_marked(state: str | None) -> bool:
    """Return whether ``state`` belongs to a chain that ``continue_call`` has begun."""
    return state is not None and state.startswith(_MARK)


def marked(state: str, begins: int) -> str:
    """Return ``state`` marked for a chain that began at round ``begins``."""
    return f"{_MARK}{begins} {state}"


def unmarked(state: str) -> tuple[int, str]:
    """Return the round at which the chain of a marked state began, and the state itself.

    Raises:
        InvalidTokenError: the mark is malformed.
    """
    begins, _, rest = state.removeprefix(_MARK).partition(" ")
    if not begins.isdecimal():
        raise InvalidTokenError
    return int(begins), rest


def chain_end(tool: Tool[Any], line: str, called: str) -> str:
    """Return the result of ``tool`` that ends a chain and names the call to continue.

    ``called`` is the name that the client has called, which a host may have put into a namespace.

    Raises:
        ToolError: with the same text, if the tool's output schema has no room for a text.
    """
    own = next((name for name in (tool.name, CONTINUE_CALL) if called.endswith(name)), called)
    space = called.removesuffix(own)
    text = (
        f"{space}{tool.name} is not done: it needs more answers than one request may ask for. All"
        f" that was answered is stored. Call the tool {space}{CONTINUE_CALL} with call={line!r} to"
        " go on exactly where it stopped."
    )
    if tool.returns in (str, Any, inspect.Signature.empty):
        return text
    raise ToolError(text)

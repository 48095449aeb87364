"""More rounds than a client allows: the call is kept, and a second tool picks it up again.

Owns the tool ``continue_call`` and the counting of rounds. Known clients give a call up after ten
rounds. With a store its questions need not be lost: the ninth reply is an ordinary result that
tells the model how to go on, and the call then asks the very questions that are open.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from anabranch.context import BranchContext
from anabranch.errors import InvalidTokenError, ToolError
from anabranch.tool import FunctionTool

__all__ = ["CHAIN", "CONTINUE", "begins_at", "is_continuing", "marked", "to_be_continued"]

CHAIN = 9
"""The round of a chain that ends it: clients allow ten."""

_MARK = "+"


async def _continue_call(
    ctx: BranchContext,
    call: Annotated[str, Field(description="The handle that the earlier result has named.")],
) -> Any:  # noqa: ANN401 - the value of whichever tool goes on
    raise ToolError(f"Call {call!r} cannot be continued at depth {ctx.depth}, inside another call.")


CONTINUE: FunctionTool[..., Any] = FunctionTool(
    _continue_call,
    name="continue_call",
    description=(
        "Pick up a tool call that had to stop because it needed more answers than one request may"
        " ask for. It goes on exactly where it stopped."
    ),
)
"""Its body is never run by a server: continuing is what the server does with it."""


def is_continuing(state: str) -> bool:
    """Whether ``state`` was handed out by ``continue_call``."""
    return state.startswith(_MARK)


def marked(state: str, begins: int) -> str:
    """Return ``state`` as ``continue_call`` hands it out, for a chain that began at a round."""
    return f"{_MARK}{begins} {state}"


def begins_at(state: str) -> tuple[int, str]:
    """Return the round at which the chain of ``state`` began, and the state itself.

    Raises:
        InvalidTokenError: it is none of ``continue_call``'s.
    """
    begins, _, rest = state.removeprefix(_MARK).partition(" ")
    if not begins.isdecimal():
        raise InvalidTokenError
    return int(begins), rest


def to_be_continued(tool: str, line: str) -> str:
    """Return the result that ends a chain."""
    return (
        f"{tool} is not done: it needs more answers than one request may ask for. All that was"
        f" answered is kept. Call the tool {CONTINUE.name} with call={line!r} to go on exactly"
        " where it stopped."
    )

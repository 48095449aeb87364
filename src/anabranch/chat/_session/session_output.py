"""The output of a session for a line of input, for any front end to show."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from anabranch.errors import AnabranchError
from anabranch.models import ModelError

EXPECTED = (AnabranchError, ModelError)
"""The errors whose text is for the person."""

Action: TypeAlias = Literal["clear", "exit"]
"""What a front end is asked to do: clear the screen, or end the session."""


@dataclass(frozen=True, slots=True)
class Output:
    """One thing to show.

    Attributes:
        type: ``message`` from the conversation, ``system`` about it, or ``error``.
        content: the text; may be empty if there is an action.
        node_id: the node that the text belongs to, ``None`` if it belongs to none.
        action: what the front end should do besides.
        is_markdown: whether a model has written the text.
    """

    type: Literal["system", "message", "error"]
    content: str
    node_id: str | None = None
    action: Action | None = None
    is_markdown: bool = field(default=False, compare=False)


class SessionError(AnabranchError):
    """A line cannot be carried out; the message says why, in a sentence for the person."""


def error_text(error: Exception) -> str:
    """Return the text to show for an error."""
    if isinstance(error, EXPECTED):
        return str(error)
    return f"An unexpected error: {type(error).__name__}: {error}. The log has the details."

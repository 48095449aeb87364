"""What a session gives back for a line of input.

Owns the shapes, for whoever shows them: a terminal, a page, a test.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["Action", "Output", "SessionError"]

Action: TypeAlias = Literal["clear", "exit"]


@dataclass(frozen=True, slots=True)
class Output:
    """One thing to show.

    Attributes:
        type: ``message`` from the conversation, ``system`` about it, or ``error``.
        content: text; may be empty where there is an action.
        node_id: the node whose text it is, if it is one's.
        action: what else is asked of whoever shows it.
    """

    type: Literal["system", "message", "error"]
    content: str
    node_id: str | None = None
    action: Action | None = None


class SessionError(Exception):
    """A line that cannot be done as it is; the message is a sentence for the person."""

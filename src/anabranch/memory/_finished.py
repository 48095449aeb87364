"""A finished branch as something to learn from, and its place in the queue."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from anabranch.memory._scopes import Level, Scope, Scopes
from anabranch.messages import Shape

TRANSCRIPT = 40_000
"""How many characters of what was done are stored, from its end."""

LEFT_OUT = "[The beginning is left out.]"
"""What stands where the beginning of a long text was."""


class FinishedBranch(Shape):
    """What a branch was to do, how it ended, and what it has done.

    ``injected`` are the ids of the memories that it was given. ``transcript`` is its conversation
    as text.
    """

    branch_id: str = Field(min_length=1, max_length=200)
    description: str
    prompt: str = ""
    status: Literal["completed", "failed", "timeout"] = "completed"
    message: str = ""
    transcript: str = ""
    injected: tuple[str, ...] = ()

    def texts(self) -> dict[str, str]:
        """Return what can hold secrets, by the names of the fields."""
        return {name: getattr(self, name) for name in _TEXTS}


_TEXTS = ("description", "prompt", "message", "transcript")


class QueuedBranch(Shape):
    """A finished branch that waits to be learned from.

    ``scopes`` are those of the caller whose branch it was, and ``level`` is where its memories
    belong; by default, the narrowest.
    """

    branch: FinishedBranch
    scopes: Scopes = Scopes()
    level: Level | None = None
    queued_at: float
    attempts: int = 0

    @property
    def home(self) -> Scope:
        """Whose the memories are that are learned from it."""
        return self.scopes.visible[0] if self.level is None else self.scopes.at(self.level)

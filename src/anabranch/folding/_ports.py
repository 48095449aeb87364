"""The ports of folding: a memory to begin branches with, and a search for secrets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

from anabranch.folding._records import Branch

Scrubber: TypeAlias = Callable[[str], Awaitable[str]]
"""Returns a text without its secrets. What it raises keeps the text from leaving its branch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectedItem:
    """A memory that a branch begins with.

    Attributes:
        type: ``memory``.
        id: its id, by which feedback on it can be given.
        title: its title.
        content: its text.
        scope: with whom it is shared, such as ``person`` or ``org``; empty if that is not known.
        recorded: the day on which it was recorded, such as ``2026-11-29``; empty if that is not known.
        tokens: what it takes of the branch's budget, its title included.
    """

    type: str = "memory"
    id: str
    title: str
    content: str
    tokens: int
    scope: str = ""
    recorded: str = ""


class BranchMemory(Protocol):
    """Where branches find what others have learned, and leave what they have.

    One that has a method ``of``, as :class:`MemoryOfCallers`, is asked for the memory of each caller.
    One that has not is one memory for all.
    """

    async def recall(
        self, text: str, *, allowance: int, limit: int, min_confidence: float
    ) -> Sequence[InjectedItem]:
        """Return the memories that help most with ``text``, the best first.

        Together they are at most ``allowance`` tokens: one that is too large is skipped.
        """
        ...

    async def queue(self, branch: Branch, transcript: str) -> bool:
        """Queue a closed branch to be distilled; return whether it was queued.

        ``transcript`` is what is known of what was done in it, with whatever secrets that has.
        """
        ...


@runtime_checkable
class MemoryOfCallers(Protocol):
    """A memory in which each caller has their own."""

    def of(self, principal: str | None) -> BranchMemory:
        """Return the memory of a principal, or of everyone where callers are not distinguished."""
        ...

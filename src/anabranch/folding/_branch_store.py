"""``BranchStore``, the port of stores of branches, and ``BranchRows``, what a transaction offers.

A store knows no rule: it finds and writes records, and sees to it that a transaction happens whole,
as if no other one ran at the same time in its session.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from anabranch.folding._records import Branch, Session

T = TypeVar("T")


class BranchRows(Protocol):
    """The records as one transaction sees them."""

    def session(self, session_id: str) -> Session | None:
        """Return the session, ``None`` if there is none.

        From here to the end of the transaction, no other one changes it or its branches.
        """
        ...

    def branch(self, branch_id: str) -> Branch | None:
        """Return the branch, ``None`` if there is none."""
        ...

    def open_children(self, branch_id: str) -> Sequence[Branch]:
        """Return the open branches directly below, the oldest first."""
        ...

    def open_branches(self, session_id: str) -> Sequence[Branch]:
        """Return the open branches of a session at all depths, the oldest first."""
        ...

    def put_session(self, session: Session) -> None:
        """Write a session, whether or not it is there."""
        ...

    def put_branch(self, branch: Branch) -> None:
        """Write a branch, whether or not it is there."""
        ...

    def count_open(self, change: int, limit: int | None = None) -> bool:
        """Add to the number of open branches in the store, unless it would exceed ``limit``.

        Returns whether it was added.
        """
        ...


class BranchStore(Protocol):
    """A store of branches.

    A method that raises has changed nothing. When one returns, what it wrote survives a crash.
    """

    async def transaction(self, work: Callable[[BranchRows], T]) -> T:
        """Return what ``work`` returns, and make what it wrote visible and durable at once.

        If it raises, nothing that it wrote has happened. It may be run again after a rollback.
        """
        ...

    async def branch(self, branch_id: str) -> Branch | None:
        """Return the branch, ``None`` if there is none."""
        ...

    async def branches(self, session_id: str) -> list[Branch]:
        """Return all branches of a session, the oldest first."""
        ...

    async def overdue(self, now: float, limit: int) -> list[str]:
        """Return the ids of open branches whose deadline is ``now`` or before, the longest first."""
        ...

    async def prune(self, before: float, limit: int) -> int:
        """Delete branches that were closed before then, and sessions untouched since without any.

        At most ``limit`` branches are deleted in one call. Returns how many were.
        """
        ...

    async def close(self) -> None:
        """Close connections and files; closing again does nothing."""
        ...

"""Branches in the memory of this process: a store that is empty when the process ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from anabranch.errors import StoreError
from anabranch.folding._branch_store import Branch, BranchRows, Session

T = TypeVar("T")


class MemoryBranches:
    """Branches in this process, for one event loop; see the port for the methods."""

    def __init__(self) -> None:
        self._sessions: dict[str, Session] = {}
        self._branches: dict[str, Branch] = {}
        self._of: dict[str, dict[str, None]] = {}
        """The open branches below each branch, and in each session, by id."""
        self._open = 0
        self._closed = False

    async def transaction(self, work: Callable[[BranchRows], T]) -> T:
        self._check()
        rows = _Rows(self._sessions, self._branches, self._of, self._open)
        value = work(rows)
        self._sessions.update(rows.new_sessions)
        for branch in rows.new_branches.values():
            self._put(branch)
        self._open = rows.open
        return value

    async def branch(self, branch_id: str) -> Branch | None:
        self._check()
        return self._branches.get(branch_id)

    async def branches(self, session_id: str) -> list[Branch]:
        self._check()
        return [each for each in self._branches.values() if each.session_id == session_id]

    async def overdue(self, now: float, limit: int) -> list[str]:
        self._check()
        late = [each for each in self._branches.values() if each.is_open and each.deadline <= now]
        return [each.id for each in sorted(late, key=_deadline)[:limit]]

    async def prune(self, before: float, limit: int) -> int:
        self._check()
        ended = ((each.id, each.completed_at) for each in self._branches.values())
        old = [name for name, at in ended if at is not None and at < before][:limit]
        for name in old:
            del self._branches[name]
        used = {each.session_id for each in self._branches.values()}
        for session in list(self._sessions.values()):
            if session.touched_at < before and session.id not in used:
                del self._sessions[session.id]
        return len(old)

    async def close(self) -> None:
        self._closed = True

    def _check(self) -> None:
        if self._closed:
            raise StoreError("The store of branches has been closed.")

    def _put(self, branch: Branch) -> None:
        self._branches[branch.id] = branch
        for holder in filter(None, (branch.session_id, branch.parent_id)):
            below = self._of.setdefault(holder, {})
            if branch.is_open:
                below[branch.id] = None
            else:
                below.pop(branch.id, None)
            if not below:
                del self._of[holder]


class _Rows:
    """The records that one transaction sees, with its own writes first."""

    def __init__(
        self,
        sessions: dict[str, Session],
        branches: dict[str, Branch],
        of: dict[str, dict[str, None]],
        count: int,
    ) -> None:
        self._sessions = sessions
        self._branches = branches
        self._of = of
        self.open = count
        self.new_sessions: dict[str, Session] = {}
        self.new_branches: dict[str, Branch] = {}

    def session(self, session_id: str) -> Session | None:
        return self.new_sessions.get(session_id) or self._sessions.get(session_id)

    def branch(self, branch_id: str) -> Branch | None:
        return self.new_branches.get(branch_id) or self._branches.get(branch_id)

    def open_children(self, branch_id: str) -> Sequence[Branch]:
        return [each for each in self._open_below(branch_id) if each.parent_id == branch_id]

    def open_branches(self, session_id: str) -> Sequence[Branch]:
        return [each for each in self._open_below(session_id) if each.session_id == session_id]

    def put_session(self, session: Session) -> None:
        self.new_sessions[session.id] = session

    def put_branch(self, branch: Branch) -> None:
        self.new_branches[branch.id] = branch

    def count_open(self, change: int, limit: int | None = None) -> bool:
        if limit is not None and self.open + change > limit:
            return False
        self.open += change
        return True

    def _open_below(self, holder: str) -> list[Branch]:
        known = {name: self._branches[name] for name in self._of.get(holder, ())}
        return [each for each in (known | self.new_branches).values() if each.is_open]


def _deadline(branch: Branch) -> float:
    return branch.deadline

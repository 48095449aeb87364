"""Creates, charges and closes branches, on the records that one transaction of a store reads.

The first of a budget, a timeout and a return, in the store's order, closes a branch. A branch whose
time is over is closed before any other operation on it. An operation that raises has written
nothing but such a closing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from anabranch.folding._admission import Owner, account_name, admit, shown_name
from anabranch.folding._branch_store import (
    Branch,
    BranchRows,
    NewBranch,
    Session,
    account_of,
    with_account,
)
from anabranch.folding._errors import (
    BranchNotActiveError,
    TooManyBranchesError,
    UnknownBranchError,
    no_active_branch,
    of_other_session,
)
from anabranch.folding._settings import FoldingSettings

End: TypeAlias = Literal["completed", "timeout", "failed"]
EventKind: TypeAlias = Literal["created", "budget_warning", "forced"] | End
"""Events of a branch; a ``forced`` branch was completed with its last partial result."""

ROOT = "root"
"""Names the session itself as the parent of a branch."""


@dataclass(frozen=True, slots=True)
class BranchEvent:
    """A change of a branch, with the branch's record after the change."""

    kind: EventKind
    branch: Branch


class Ledger:
    """Creates, charges and closes the branches of one owner in one transaction.

    A caller names a branch, and finds it only in sessions of the ``owner``. A branch, its parent and
    its children are in one session. The ``events`` are sent after the commit.
    """

    def __init__(
        self, rows: BranchRows, owner: Owner, settings: FoldingSettings, now: float
    ) -> None:
        self._rows = rows
        self._owner = owner
        self._settings = settings
        self._now = now
        self.events: list[BranchEvent] = []

    # -- finding a branch --------------------------------------------------------------------

    def find(self, branch_id: str | None, session_id: str | None) -> str:
        if branch_id is not None:
            return checked_branch(self._found(branch_id), branch_id, session_id).id
        inner = None if session_id is None else self.innermost(session_id)
        if inner is None:
            raise no_active_branch(None if session_id is None else shown_name(session_id))
        return inner.id

    def placed(self, new: NewBranch, parent_id: str | None, session_id: str | None) -> NewBranch:
        if parent_id == ROOT:
            parent_id = None
        elif parent_id is not None:
            parent = checked_branch(self._found(parent_id), parent_id, session_id)
            session_id = parent.session_id
        elif session_id is not None and (inner := self.innermost(session_id)) is not None:
            parent_id = inner.id
        if parent_id is None and session_id is None:
            return new
        return replace(new, parent_id=parent_id, session_id=session_id or new.session_id)

    # -- operations on a branch --------------------------------------------------------------

    def create(self, new: NewBranch) -> tuple[Branch, int | None]:
        """Admit a branch; return it with its parent's remaining tokens, ``None`` for no limit."""
        rows, now = self._rows, self._now
        parent = None if new.parent_id is None else self._active(new.parent_id)
        session = rows.session(new.session_id) or Session(
            id=new.session_id, budget_total=new.session_budget, touched_at=now
        )
        admitted = admit(new, parent, session, self._settings, now)
        account = self._owner_account(admitted.branch, 1, self._settings.max_concurrent_per_caller)
        instance = self._settings.max_concurrent_per_instance
        if not rows.count_open(1, instance):
            raise TooManyBranchesError("instance", instance)
        if admitted.parent is not None:
            rows.put_branch(admitted.parent)
        for session in filter(None, (account, admitted.session)):
            rows.put_session(session)
        branch = admitted.branch
        branch = self._activate(branch, (), new.tokens) if new.is_ready else self._put(branch)
        return branch, admitted.parent_left

    def activate(self, branch_id: str, memories: Sequence[str], tokens: int) -> Branch:
        branch = self.present(branch_id)
        if branch.status != "created":
            raise BranchNotActiveError(branch.id, branch.status)
        return self._activate(branch, tuple(memories), tokens)

    def charge(
        self, branch_id: str, tokens: int, partial: str | None = None, *, forces: bool = True
    ) -> Branch:
        branch = self._active(branch_id)
        branch = self._charged(
            branch if partial is None else replace(branch, partial=partial), tokens
        )
        if forces and account_of(branch).is_exhausted:
            used = f"{branch.budget_used}/{branch.budget_total}"
            return self._force(branch, f"budget exhausted: {used} tokens")
        return self._put(branch)

    def complete(
        self, branch_id: str, message: str, tokens: int, *, extract_memory: bool = False
    ) -> Branch:
        branch = self._charged(self._active(branch_id), tokens)
        returning = _to_learn_from(branch, extract_memory)
        return self._close(returning, "completed", result=message, error=None)

    def force(
        self,
        branch_id: str,
        reason: str,
        partial: str | None = None,
        *,
        extract_memory: bool = False,
    ) -> Branch:
        branch = self.present(branch_id)
        if not branch.is_open:
            return branch
        if partial is not None:
            branch = replace(branch, partial=partial)
        return self._force(_to_learn_from(branch, extract_memory), reason)

    def present(self, branch_id: str, partial: str | None = None) -> Branch:
        """Lock the session of a branch; return the present record, closed if its time is over."""
        found = self._found(branch_id)
        if found is not None:
            self._rows.session(found.session_id)
            found = self._rows.branch(branch_id)
        branch = checked_branch(found, branch_id, None)
        if partial is not None and branch.is_open:
            branch = replace(branch, partial=partial)
        return self._in_time(branch)

    def innermost(self, session_id: str) -> Branch | None:
        self._rows.session(session_id)
        for branch in self._rows.open_branches(session_id):
            if branch.deadline <= self._now:  # the end of another branch may have closed it
                self._in_time(self._rows.branch(branch.id) or branch)
        active = [each for each in self._rows.open_branches(session_id) if each.status == "active"]
        return max(active, key=lambda each: (each.depth, each.created_at), default=None)

    # -- internals ---------------------------------------------------------------------------

    def _active(self, branch_id: str) -> Branch:
        branch = self.present(branch_id)
        if branch.status != "active":
            raise BranchNotActiveError(branch.id, branch.status)
        return branch

    def _found(self, branch_id: str) -> Branch | None:
        return self._owner.own(self._rows.branch(branch_id))

    def _in_time(self, branch: Branch) -> Branch:
        if not branch.is_open or branch.deadline > self._now:
            return branch
        seconds = branch.deadline - branch.created_at
        reason = f"timeout: the branch had not returned within {seconds:g} s"
        return self._close(branch, "timeout", result=branch.partial, error=reason)

    def _activate(self, branch: Branch, memories: tuple[str, ...], tokens: int) -> Branch:
        account = account_of(branch)
        warning = account.settle(None, tokens)
        active = branch.to(
            "active",
            injected_memories=memories,
            budget_used=account.tokens,
            warned=account.has_warned,
        )
        self._put(active)
        self.events.append(BranchEvent("created", active))
        if warning:
            self.events.append(BranchEvent("budget_warning", active))
        return active

    def _charged(self, branch: Branch, tokens: int, reserved: int = 0) -> Branch:
        account = account_of(branch)
        warning = account.settle(account.reserved_before(reserved), tokens)
        charged = with_account(branch, account)
        if warning:
            self.events.append(BranchEvent("budget_warning", charged))
        return charged

    def _force(self, branch: Branch, reason: str) -> Branch:
        status: End = "failed"
        if branch.status == "active" and branch.partial:
            status = "completed"
        return self._close(branch, status, result=branch.partial, error=reason)

    def _close(
        self, branch: Branch, status: End, *, result: str | None, error: str | None
    ) -> Branch:
        self._put(branch)
        # Each open child has its budget reserved in this branch.
        for child in self._rows.open_children(branch.id) if branch.budget_reserved else ():
            self._force(child, f"orphaned: its parent {branch.id} was closed ({status})")
        now = self._rows.branch(branch.id) or branch
        closed = now.to(status, result=result, error=error, completed_at=self._now)
        self._put(closed)
        self._refund(closed)
        kind: EventKind = "forced" if status == "completed" and error else status
        self.events.append(BranchEvent(kind, closed))
        return closed

    def _refund(self, closed: Branch) -> None:
        rows = self._rows
        owner = self._owner_account(closed, -1)  # the same order everywhere: both lock
        if owner is not None:
            rows.put_session(owner)
        rows.count_open(-1)
        session = rows.session(closed.session_id)
        if session is not None:
            session = replace(session, open=session.open - 1, touched_at=self._now)
            if closed.parent_id is None:
                account = account_of(session)
                account.settle(account.reserved_before(closed.budget_total), closed.budget_used)
                session = with_account(session, account)
            rows.put_session(session)
        parent = None if closed.parent_id is None else rows.branch(closed.parent_id)
        if parent is not None:
            self._put(self._charged(parent, closed.budget_used, closed.budget_total))

    def _owner_account(
        self, branch: Branch, change: int, limit: int | None = None
    ) -> Session | None:
        """Return the owner's changed account; ``None`` where callers are not distinguished."""
        name = account_name(branch.session_id)
        if name is None:
            return None
        account = self._rows.session(name) or Session(id=name, budget_total=None, touched_at=0)
        count = account.open + change
        if limit is not None and count > limit:
            raise TooManyBranchesError("caller", limit)
        # Touched until then, so that the account is not deleted while the branch may be open.
        until = max(account.touched_at, branch.deadline)
        return replace(account, open=max(0, count), touched_at=until)

    def _put(self, branch: Branch) -> Branch:
        self._rows.put_branch(branch)
        return branch


def checked_branch(found: Branch | None, branch_id: str, session_id: str | None) -> Branch:
    if found is None:
        raise UnknownBranchError(branch_id)
    if session_id is not None and found.session_id != session_id:
        raise of_other_session(branch_id)
    return found


def _to_learn_from(branch: Branch, asked: bool) -> Branch:  # noqa: FBT001
    return replace(branch, extract_memory=branch.extract_memory or asked)

"""The admission of a new branch: the limits that it must fit into, and the budget that it gets.

Computed from records alone: nothing is read or written here, so that a branch that is refused has
left no trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

from anabranch._budget import Account, BudgetError, Reservation
from anabranch.folding._branch_store import (
    Branch,
    BranchRows,
    NewBranch,
    Session,
    account_of,
    with_account,
)
from anabranch.folding._errors import (
    BudgetExhaustedError,
    CreationRateError,
    FoldingDepthError,
    InvalidBudgetError,
    TooManyBranchesError,
)
from anabranch.folding._settings import FoldingSettings

MARK, END = "@", "/"


@dataclass(frozen=True, slots=True)
class Owner:
    """Who reads and writes branches.

    Attributes:
        principal: empty for callers that are not distinguished, and ``None`` for the host itself,
            which finds everything, and names sessions as they are stored.
    """

    principal: str | None

    def stored_name(self, session_id: str) -> str:
        """Return the name under which a session is stored that the owner names.

        The stored name of a session of its own means that session, too.
        """
        return session_id if self.owns(session_id) else f"{self._scope}{END}{session_id}"

    def owns(self, stored: str) -> bool:
        """Return whether the session with this stored name is the owner's."""
        if self.principal is None:
            return True
        if not self.principal:
            return not stored.startswith(MARK) or stored.startswith(f"{MARK}{END}{MARK}")
        return stored.startswith(f"{self._scope}{END}")

    def reads(self, stored: str) -> bool:
        """Return whether it is the owner's, or the account of all that are."""
        return self.owns(stored) or stored == self._scope

    @property
    def _scope(self) -> str:
        text = (self.principal or "").encode("utf-8", "surrogatepass")
        return MARK + (blake2b(text, digest_size=16).hexdigest() if text else "")


HOST = Owner(None)
"""The host itself."""


def shown_name(stored: str) -> str:
    """Return the name by which its principal knows a session."""
    return stored.partition(END)[2] if stored.startswith(MARK) else stored


def account_name(stored: str) -> str | None:
    """Return the name of the account of all sessions of a session's owner.

    It is that of a session which no caller can name. ``None`` for the sessions of callers that are not
    distinguished.
    """
    scope, ends, _ = stored.partition(END)
    return scope if ends and scope.startswith(MARK) and scope != MARK else None


class OwnedRows:
    """The records of one owner as a transaction sees them. What each method does is said at the port."""

    def __init__(self, rows: BranchRows, owner: Owner) -> None:
        self._rows = rows
        self._owner = owner

    def session(self, session_id: str) -> Session | None:
        return self._rows.session(session_id) if self._owner.reads(session_id) else None

    def branch(self, branch_id: str) -> Branch | None:
        found = self._rows.branch(branch_id)
        return found if found and self._owner.owns(found.session_id) else None

    def open_children(self, branch_id: str) -> Sequence[Branch]:
        return self._own(self._rows.open_children(branch_id))

    def open_branches(self, session_id: str) -> Sequence[Branch]:
        return self._own(self._rows.open_branches(session_id))

    def put_session(self, session: Session) -> None:
        self._rows.put_session(session)

    def put_branch(self, branch: Branch) -> None:
        self._rows.put_branch(branch)

    def count_open(self, change: int, limit: int | None = None) -> bool:
        return self._rows.count_open(change, limit)

    def _own(self, found: Sequence[Branch]) -> Sequence[Branch]:
        return [each for each in found if self._owner.owns(each.session_id)]


MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class Admitted:
    """A branch that may be created, and the records around it as they are then.

    Attributes:
        branch: the branch, created and not active.
        parent: its parent, which holds its budget; ``None`` directly below the session.
        session: its session.
        parent_left: tokens that its parent, or its session, has left; ``None`` for no limit.
    """

    branch: Branch
    parent: Branch | None
    session: Session
    parent_left: int | None


def admit(
    new: NewBranch, parent: Branch | None, session: Session, settings: FoldingSettings, now: float
) -> Admitted:
    """Return what creating a branch makes of the records.

    Raises:
        FoldingError: if a limit does not allow it.
    """
    depth = 1 if parent is None else parent.depth + 1
    if depth > settings.max_depth:
        raise FoldingDepthError(depth, settings.max_depth)
    session = _counted(session, settings, now)
    account = account_of(session if parent is None else parent)
    budget = _reserve(new, account, settings)
    deadline = now + new.timeout_seconds
    branch = Branch(
        id=new.id,
        session_id=new.session_id,
        parent_id=new.parent_id,
        depth=depth,
        description=new.description,
        prompt=new.prompt,
        budget_total=budget,
        timeout_seconds=new.timeout_seconds,
        deadline=deadline if parent is None else min(deadline, parent.deadline),
        created_at=now,
        extract_memory=new.extract_memory,
        owner=new.owner,
    )
    return Admitted(
        branch=branch,
        parent=None if parent is None else with_account(parent, account),
        session=with_account(session, account) if parent is None else session,
        parent_left=None if account.max_tokens is None else account.left,
    )


def _counted(session: Session, settings: FoldingSettings, now: float) -> Session:
    """Return the session with one more open branch, within its rate and its number."""
    if session.open + 1 > settings.max_concurrent_per_session:
        raise TooManyBranchesError("session", settings.max_concurrent_per_session)
    # Each creation fills its part of a minute; a minute that is full holds no more.
    full_until = max(now, session.full_until) + MINUTE / settings.max_created_per_minute
    if full_until > now + MINUTE:
        raise CreationRateError(settings.max_created_per_minute, full_until - now - MINUTE)
    return replace(session, open=session.open + 1, full_until=full_until, touched_at=now)


def _reserve(new: NewBranch, account: Account, settings: FoldingSettings) -> int:
    """Reserve the budget of a branch in its parent's account, and return it."""
    others = Reservation(new.parent_reserved)
    others.hold_in(account)
    left = account.left
    default = settings.default_budget
    budget = new.budget or (default if left is None else max(1, min(default, left // 2)))
    if new.budget is not None and new.tokens >= new.budget:
        what = "budget, of which the branch's own description and prompt are a part,"
        raise InvalidBudgetError(what, budget, new.tokens + 1, settings.max_budget)
    wanted = max(budget, new.tokens + 1)
    try:
        account.reserve(wanted, wanted)
    except BudgetError:
        name = "This session" if new.parent_id is None else f"Branch {new.parent_id!r}"
        raise BudgetExhaustedError(name, wanted, left or 0) from None
    others.release()  # they are in no record
    return wanted

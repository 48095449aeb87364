"""``BranchStore``, the port of stores of branches, and ``BranchRows``, what a transaction offers.

A store knows no rule: it finds and writes records, and sees to it that a transaction happens whole,
as if no other one ran at the same time in its session.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

from anabranch._budget import Account
from anabranch.folding._errors import TransitionError

Status: TypeAlias = Literal["created", "active", "completed", "timeout", "failed"]
"""The state of a branch."""

TRANSITIONS: Mapping[Status, frozenset[Status]] = {
    "created": frozenset({"active", "timeout", "failed"}),
    "active": frozenset({"completed", "timeout", "failed"}),
    "completed": frozenset(),
    "timeout": frozenset(),
    "failed": frozenset(),
}
"""The states that may follow each state."""

OPEN: frozenset[Status] = frozenset(status for status, after in TRANSITIONS.items() if after)
"""The states of a branch that has not ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """One branch, as it is stored.

    Attributes:
        id: begins with ``br_``; hard to guess.
        session_id: the session that it belongs to.
        parent_id: the branch that encloses it, ``None`` directly below the session.
        depth: 1 directly below the session, one more in each branch.
        description: what the subtask is, for people and for the search of memories.
        prompt: what the subtask has to do.
        budget_total: the tokens that it may use; reserved in its parent while it is open.
        budget_used: the tokens that it has used, those of its closed children included.
        budget_reserved: the budgets of its open children.
        timeout_seconds: the time that it was given.
        deadline: when that time is over, or its parent's, in seconds since the epoch.
        status: its state.
        result: what it has returned; of a branch that was forced, what it had so far.
        error: why it was forced to return, or has failed.
        injected_memories: the ids of the memories that it began with.
        created_at: in seconds since the epoch.
        completed_at: when it was closed, ``None`` while it is open.
        partial: what it has reported so far, which is its result if it is forced to return.
        warned: whether the warning at 80 % of the budget was given.
        extract_memory: whether it is to be distilled into memories, however it ends.
        owner: the principal whose it is; ``None`` if the host has created it.
    """

    id: str
    session_id: str
    parent_id: str | None
    depth: int
    description: str
    prompt: str
    budget_total: int
    budget_used: int = 0
    budget_reserved: int = 0
    timeout_seconds: float
    deadline: float
    status: Status = "created"
    result: str | None = None
    error: str | None = None
    injected_memories: tuple[str, ...] = ()
    created_at: float
    completed_at: float | None = None
    partial: str | None = None
    warned: bool = False
    extract_memory: bool = False
    owner: str | None = None

    @property
    def is_open(self) -> bool:
        """Whether it has not ended."""
        return self.status in OPEN

    @property
    def budget_remaining(self) -> int:
        """The tokens that are neither used nor reserved."""
        return account_of(self).left or 0

    def to(self, status: Status, **changes: Any) -> Branch:  # noqa: ANN401 - its fields
        """Return it in another state, and with these changes.

        Raises:
            TransitionError: that state does not follow its own.
        """
        if status not in TRANSITIONS[self.status]:
            raise TransitionError(self.id, self.status, status)
        return replace(self, status=status, **changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBranch:
    """A branch that is to be created; its texts and numbers are valid already.

    Attributes:
        id: its name.
        session_id: the name of its session, which is created if it is not there; until it is
            placed, that of a new one.
        session_budget: the budget of such a session.
        parent_id: the branch that encloses it; ``None`` for the session.
        description: as in the record.
        prompt: as in the record.
        budget: as in the record; ``None`` for the default, or for half of what its parent has left
            where that is less.
        timeout_seconds: as in the record.
        tokens: what it uses at once: those of its description and prompt.
        is_ready: whether it is active at once; otherwise it is activated later.
        extract_memory: as in the record.
        owner: as in the record.
        parent_reserved: what open requests of its parent may still take.
    """

    id: str
    session_id: str
    session_budget: int | None
    parent_id: str | None
    description: str
    prompt: str
    budget: int | None
    timeout_seconds: float
    tokens: int
    is_ready: bool
    extract_memory: bool = False
    owner: str | None = None
    parent_reserved: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What the branches of one agent, or one conversation, share.

    Attributes:
        id: begins with ``fs_`` unless the caller has named it; hard to guess.
        budget_total: the tokens of all its branches, ``None`` if they are counted elsewhere.
        budget_used: the tokens of its closed branches.
        budget_reserved: the budgets of its open ones.
        open: how many branches are open, at all depths.
        full_until: how long the creations so far fill the rate; in seconds since the epoch.
        touched_at: when it was last written.
    """

    id: str
    budget_total: int | None
    budget_used: int = 0
    budget_reserved: int = 0
    open: int = 0
    full_until: float = 0.0
    touched_at: float

    @property
    def budget_remaining(self) -> int | None:
        """The tokens that are neither used nor reserved, ``None`` without a budget."""
        return account_of(self).left


H = TypeVar("H", "Branch", "Session")


def account_of(holder: Branch | Session) -> Account:
    """Return the library's account of what a branch or a session has used and reserved.

    The budget of a child is reserved in its parent's account, whole; so a parent's account need not
    enclose the child's, and a child can spend without touching the records around it.
    """
    return Account(
        holder.id,
        max_tokens=holder.budget_total,
        tokens=holder.budget_used,
        reserved=holder.budget_reserved,
        has_warned=isinstance(holder, Branch) and holder.warned,
    )


def with_account(holder: H, account: Account) -> H:
    """Return the record with what its account says now."""
    used, reserved = account.tokens, account.reserved
    if isinstance(holder, Session):
        return replace(holder, budget_used=used, budget_reserved=reserved)
    warned = account.has_warned
    return replace(holder, budget_used=used, budget_reserved=reserved, warned=warned)


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

"""``BranchStore``, the port of stores of branches, with its records and a branch's states."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

from anabranch._budget import Account
from anabranch.folding._errors import FoldingError

Status: TypeAlias = Literal["created", "active", "completed", "timeout", "failed"]

TRANSITIONS: Mapping[Status, frozenset[Status]] = {
    "created": frozenset({"active", "timeout", "failed"}),
    "active": frozenset({"completed", "timeout", "failed"}),
    "completed": frozenset(),
    "timeout": frozenset(),
    "failed": frozenset(),
}

OPEN: frozenset[Status] = frozenset(status for status, after in TRANSITIONS.items() if after)


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """The record of a branch: its subtask, budget, deadline, state and result.

    Attributes:
        id: the branch's id, which begins with ``br_`` and is hard to guess.
        session_id: the session of the branch.
        parent_id: the enclosing branch; ``None`` directly below the session.
        depth: the nesting depth: 1 directly below the session.
        description: a description of the subtask, for users and for the search of memories.
        prompt: the instructions of the subtask.
        budget_total: the tokens that the branch may use; its parent reserves them while the branch
            is open.
        budget_used: the tokens used so far, including those of closed child branches.
        budget_reserved: the budgets of open child branches.
        timeout_seconds: the time limit, in seconds.
        deadline: the earlier of the branch's and its parent's deadline, in seconds since the epoch.
        status: the state of the branch, such as ``created``.
        result: the message that the branch returned, or the last partial result if the branch was
            closed early.
        error: the reason why the branch failed or was closed early.
        injected_memories: the ids of the notes that the branch was given.
        created_at: the time of creation, in seconds since the epoch.
        completed_at: the time of closing; ``None`` while the branch is open.
        partial: the last reported partial result, which becomes the result if the branch is closed
            early.
        warned: whether the warning at 80 % of the budget was given.
        extract_memory: whether to distil notes from the branch, also if it fails.
        owner: the principal who created the branch; ``None`` if the application created it.
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
        """Whether the branch is still open."""
        return self.status in OPEN

    @property
    def budget_remaining(self) -> int:
        """The tokens that are neither used nor reserved by open child branches."""
        return account_of(self).left or 0

    def to(self, status: Status, **changes: Any) -> Branch:  # noqa: ANN401 - its fields
        """Return a copy of the branch in the state ``status``, with further changed fields.

        Raises:
            FoldingError: if the branch cannot change from its state to ``status``.
        """
        if status not in TRANSITIONS[self.status]:
            raise FoldingError(
                "FOLD005", f"Branch {self.id!r} cannot go from {self.status} to {status}."
            )
        return replace(self, status=status, **changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBranch:
    """The parameters of a new branch, with valid texts and numbers.

    Attributes:
        budget: ``None`` for the default, or for half of the parent's remaining tokens if that is less.
        tokens: the tokens of the description and prompt, which are used immediately.
        is_ready: whether the branch is active immediately; otherwise it is activated later.
        parent_reserved: tokens that open requests of the parent may still take.
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
    """The record that all branches of one agent, or of one conversation, share.

    Attributes:
        budget_total: the tokens of all its branches; ``None`` if another account counts them.
        full_until: the time until which past creations fill the rate, in seconds since the epoch.
    """

    id: str
    budget_total: int | None
    budget_used: int = 0
    budget_reserved: int = 0
    open: int = 0
    full_until: float = 0.0
    touched_at: float


H = TypeVar("H", "Branch", "Session")


def account_of(holder: Branch | Session) -> Account:
    """Return an account of a holder's tokens; a parent's account reserves its children's budgets.

    So a child spends without touching the records around it.
    """
    return Account(
        holder.id,
        max_tokens=holder.budget_total,
        tokens=holder.budget_used,
        reserved=holder.budget_reserved,
        has_warned=isinstance(holder, Branch) and holder.warned,
    )


def with_account(holder: H, account: Account) -> H:
    used, reserved = account.tokens, account.reserved
    if isinstance(holder, Session):
        return replace(holder, budget_used=used, budget_reserved=reserved)
    warned = account.has_warned
    return replace(holder, budget_used=used, budget_reserved=reserved, warned=warned)


T = TypeVar("T")


class BranchRows(Protocol):
    """The records of a store that one transaction reads and writes."""

    def session(self, session_id: str) -> Session | None:
        """Return the session, or ``None``.

        Until the end of the transaction, no other transaction changes the session or its branches.
        """
        ...

    def branch(self, branch_id: str) -> Branch | None: ...

    def open_children(self, branch_id: str) -> Sequence[Branch]:
        """Return the open children of a branch, the oldest first."""
        ...

    def open_branches(self, session_id: str) -> Sequence[Branch]:
        """Return the open branches of a session at all depths, the oldest first."""
        ...

    def put_session(self, session: Session) -> None: ...

    def put_branch(self, branch: Branch) -> None: ...

    def count_open(self, change: int, limit: int | None = None) -> bool:
        """Add ``change`` to the store's number of open branches, unless it would exceed ``limit``.

        Returns whether the number changed.
        """
        ...


class BranchStore(Protocol):
    """A store of branches. Only the library calls its methods, except ``close``.

    A method that raises has changed nothing. A write survives a crash once its method has returned.
    """

    async def transaction(self, work: Callable[[BranchRows], T]) -> T:
        """Run ``work`` in a transaction, commit its writes together, and return its result.

        If ``work`` raises, its writes are discarded. The store may run it again after a rollback.
        """
        ...

    async def branch(self, branch_id: str) -> Branch | None:
        """Return the branch, or ``None``."""
        ...

    async def branches(self, session_id: str) -> list[Branch]:
        """Return all branches of a session, the oldest first."""
        ...

    async def overdue(self, now: float, limit: int) -> list[str]:
        """Return the ids of open branches with a deadline at or before ``now``, the most overdue first."""
        ...

    async def prune(self, before: float, limit: int) -> int:
        """Delete branches closed before ``before``, and empty sessions last written before then.

        One call deletes at most ``limit`` branches. Returns the number of deleted branches.
        """
        ...

    async def close(self) -> None:
        """Close connections and files; a second call does nothing."""
        ...

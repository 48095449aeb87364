"""The admission of a new branch: the limits that it must fit into, and the budget that it gets.

Computed from records alone: nothing is read or written here, so that a branch that is refused has
left no trace.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from anabranch._budget import Account, BudgetError, Reservation
from anabranch.folding._errors import (
    BudgetExhaustedError,
    CreationRateError,
    FoldingDepthError,
    InvalidBudgetError,
    TooManyBranchesError,
)
from anabranch.folding._records import Branch, NewBranch, Session, account_of, with_account
from anabranch.folding._settings import FoldingSettings

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
        FoldingError: a limit does not allow it.
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

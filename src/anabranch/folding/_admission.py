"""Admits a new branch from records alone, so that a refused branch leaves no trace."""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import blake2b

from anabranch._budget import Account, BudgetError, Reservation
from anabranch.folding._branch_store import Branch, NewBranch, Session, account_of, with_account
from anabranch.folding._errors import (
    BudgetExhaustedError,
    FoldingError,
    TooManyBranchesError,
    tokens_out_of_range,
)
from anabranch.folding._settings import FoldingSettings

MARK, END = "@", "/"


@dataclass(frozen=True, slots=True)
class Owner:
    """A principal: empty where callers are not distinguished, ``None`` for the host, which owns all.

    Another principal's session looks like one that does not exist, so that its name stays unknown.
    """

    principal: str | None

    def stored_name(self, session_id: str) -> str:
        """Return the stored name of a session; an owner's session is also found by its stored name."""
        return session_id if self.owns(session_id) else f"{self._scope}{END}{session_id}"

    def owns(self, stored: str) -> bool:
        if self.principal is None:
            return True
        if not self.principal:
            return not stored.startswith(MARK) or stored.startswith(f"{MARK}{END}{MARK}")
        return stored.startswith(f"{self._scope}{END}")

    def own(self, found: Branch | None) -> Branch | None:
        """Return a found branch if it is in a session of the owner."""
        return found if found is not None and self.owns(found.session_id) else None

    @property
    def _scope(self) -> str:
        text = (self.principal or "").encode("utf-8", "surrogatepass")
        return MARK + (blake2b(text, digest_size=16).hexdigest() if text else "")


HOST = Owner(None)


def shown_name(stored: str) -> str:
    return stored.partition(END)[2] if stored.startswith(MARK) else stored


def account_name(stored: str) -> str | None:
    """Return the name of an owner's account, a session that no caller can name; else ``None``."""
    scope, ends, _ = stored.partition(END)
    return scope if ends and scope.startswith(MARK) and scope != MARK else None


MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class Admitted:
    """A new branch, and its changed parent and session; ``parent_left`` is ``None`` for no limit."""

    branch: Branch
    parent: Branch | None
    session: Session
    parent_left: int | None


def admit(
    new: NewBranch, parent: Branch | None, session: Session, settings: FoldingSettings, now: float
) -> Admitted:
    depth = 1 if parent is None else parent.depth + 1
    if depth > settings.max_depth:
        raise FoldingError(
            "FOLD004",
            f"A branch at depth {depth} is deeper than max_depth={settings.max_depth}. Do the subtask"
            " here, or return from this branch first.",
        )
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
    if session.open + 1 > settings.max_concurrent_per_session:
        raise TooManyBranchesError("session", settings.max_concurrent_per_session)
    # Each creation fills a part of a minute; a full minute admits no further branch.
    full_until = max(now, session.full_until) + MINUTE / settings.max_created_per_minute
    if full_until > now + MINUTE:
        seconds = max(1, round(full_until - now - MINUTE))
        raise FoldingError(
            "FOLD012",
            f"This session may create {settings.max_created_per_minute} branches per minute. Try"
            f" again in {seconds} s, or do the subtask here.",
        )
    return replace(session, open=session.open + 1, full_until=full_until, touched_at=now)


def _reserve(new: NewBranch, account: Account, settings: FoldingSettings) -> int:
    others = Reservation(new.parent_reserved)
    others.hold_in(account)
    left = account.left
    default = settings.default_budget
    budget = new.budget or (default if left is None else max(1, min(default, left // 2)))
    if new.budget is not None and new.tokens >= new.budget:
        what = "budget, of which the branch's own description and prompt are a part,"
        raise tokens_out_of_range(what, budget, new.tokens + 1, settings.max_budget)
    wanted = max(budget, new.tokens + 1)
    try:
        account.reserve(wanted, wanted)
    except BudgetError:
        name = "This session" if new.parent_id is None else f"Branch {new.parent_id!r}"
        raise BudgetExhaustedError(name, wanted, left or 0) from None
    others.release()  # no record has these reservations
    return wanted

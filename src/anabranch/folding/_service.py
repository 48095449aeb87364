"""``BranchService``: branches as the tools of every host use them, over one store.

It checks what it is given, hands it to the ledger in one transaction, and reports afterwards what has
happened. Any number of processes may have a service over one store. A service has no task in the
background: a branch whose time is over is closed when it is next looked at, when another one needs its
place, or by :meth:`BranchService.expire`.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial as bound
from typing import TypeVar

from anabranch._asking.tokens import estimate_tokens
from anabranch._engine.clock import Clock, SystemClock
from anabranch.folding._branch_store import BranchRows, BranchStore
from anabranch.folding._errors import (
    FoldingError,
    InvalidBudgetError,
    InvalidTextError,
    InvalidTimeoutError,
    NoActiveBranchError,
    ScrubbingError,
    SessionMismatchError,
    TooManyBranchesError,
    UnknownBranchError,
)
from anabranch.folding._ledger import BranchEvent, Ledger, NewBranch
from anabranch.folding._memory_store import MemoryBranches
from anabranch.folding._ports import BranchMemory, InjectedItem, Scrubber
from anabranch.folding._records import Branch
from anabranch.folding._settings import FoldingSettings
from anabranch.folding._telemetry import record

__all__ = ["ROOT", "BranchService", "CreatedBranch", "ReturnedBranch"]

T = TypeVar("T")

logger: logging.Logger = logging.getLogger("anabranch.folding")

ROOT = "root"
"""The parent of a branch directly below its session, where this is not the default."""
INTERVAL = 60.0
"""Seconds between two looks for branches whose time is over."""
BATCH = 100
MAX_ID = 200
"""Characters of an id that a caller gives."""
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True)
class CreatedBranch:
    """What the creation of a branch returns.

    Attributes:
        branch: its record.
        injected: the memories that it begins with.
        parent_budget_remaining: what its parent has left, ``None`` for no limit.
    """

    branch: Branch
    injected: Sequence[InjectedItem]
    parent_budget_remaining: int | None


@dataclass(frozen=True, slots=True)
class ReturnedBranch:
    """What the return of a branch leaves: its record, and whether it was queued for distillation."""

    branch: Branch
    memory_queued: bool


class BranchService:
    """Creates branches, accounts for them and closes them.

    Args:
        store: stores them; by default, the memory of this process.
        settings: their defaults and limits.
        memory: what they begin with, and what learns from them; by default, nothing.
        scrub: removes secrets from every text that is stored or leaves a branch; by default, texts
            stay as they are.
        clock: gives the time; by default, the system's.
        listener: receives each event once it is stored; what it raises is logged.
    """

    def __init__(
        self,
        store: BranchStore | None = None,
        settings: FoldingSettings | None = None,
        *,
        memory: BranchMemory | None = None,
        scrub: Scrubber | None = None,
        clock: Clock | None = None,
        listener: Callable[[BranchEvent], None] | None = None,
    ) -> None:
        self.store: BranchStore = store or MemoryBranches()
        self.settings: FoldingSettings = settings or FoldingSettings()
        self._memory = memory
        self._scrub = scrub
        self._clock = clock or SystemClock()
        self._listener = listener
        self._looked_at = float("-inf")

    async def create(
        self,
        description: str,
        prompt: str,
        *,
        budget: int | None = None,
        inject_memories: bool = True,
        timeout_seconds: float | None = None,
        parent_branch_id: str | None = None,
        session_id: str | None = None,
        is_metered: bool = True,
    ) -> CreatedBranch:
        """Create a branch, and let it begin with what the memory has for it.

        Args:
            description: what the subtask is.
            prompt: what it has to do.
            budget: its tokens; by default, those of the settings, or half of what its parent has
                left where that is less.
            inject_memories: begin with memories.
            timeout_seconds: its time; by default, that of the settings.
            parent_branch_id: the branch that encloses it, or ``root``; by default, the innermost
                active branch of the session.
            session_id: its session; by default, that of the parent, or a new one.
            is_metered: whether a session that is new has the budget of the settings; otherwise
                the tokens of its branches are limited elsewhere.

        Raises:
            FoldingError: it is invalid, or a limit does not allow it; nothing was created.
        """
        new = await self._new(description, prompt, budget, timeout_seconds)
        recalls = inject_memories and self._memory is not None
        new = replace(
            await self._placed(new, parent_branch_id, session_id),
            session_budget=self.settings.session_budget if is_metered else None,
            is_ready=not recalls,
        )
        await self._look_for_overdue()
        try:
            branch, left = await self._do(lambda ledger: ledger.create(new))
        except TooManyBranchesError:
            if not await self.expire():
                raise
            branch, left = await self._do(lambda ledger: ledger.create(new))
        items: Sequence[InjectedItem] = ()
        if recalls:
            items = await self._recall(branch, new.tokens)
            tokens = new.tokens + sum(item.tokens for item in items)
            names = [item.id for item in items]
            branch = await self._do(lambda ledger: ledger.activate(new.id, names, tokens))
        return CreatedBranch(branch, items, left)

    async def complete(
        self,
        message: str,
        *,
        branch_id: str | None = None,
        session_id: str | None = None,
        extract_memory: bool = False,
        tokens: int | None = None,
    ) -> ReturnedBranch:
        """Close a branch with the message that it returns; its open children are forced first.

        Args:
            message: what it returns, stored without its secrets.
            branch_id: the branch; by default, the innermost active one of the session.
            session_id: its session.
            extract_memory: let the memory learn from it.
            tokens: what the message has used; by default, an estimate.

        Raises:
            FoldingError: the message is invalid, or there is no such active branch.
        """
        clean = await self._text("message", message, self.settings.max_message_length)
        used = estimate_tokens(clean) if tokens is None else tokens
        found = await self._find(branch_id, session_id)
        branch = await self._do(
            lambda ledger: ledger.complete(found.id, clean, used, extract_memory=extract_memory)
        )
        return ReturnedBranch(branch, extract_memory and await self._queue(branch))

    async def charge(
        self,
        tokens: int,
        *,
        branch_id: str | None = None,
        session_id: str | None = None,
        partial: str | None = None,
        forces: bool = True,
    ) -> Branch:
        """Charge tokens to a branch; return its record, which is closed if its budget is used up.

        Args:
            tokens: what it has used since the last time.
            branch_id: the branch; by default, the innermost active one of the session.
            session_id: its session.
            partial: what it has so far, which is its result if it is forced to return.
            forces: whether it is closed then; otherwise the caller sees to it.

        Raises:
            FoldingError: there is no such active branch, or ``tokens`` is negative.
        """
        if tokens < 0:
            raise InvalidBudgetError("tokens", tokens, 0, None)
        found = await self._find(branch_id, session_id)
        draft = await self._draft(partial)
        return await self._do(lambda ledger: ledger.charge(found.id, tokens, draft, forces=forces))

    async def force(self, branch_id: str, reason: str, partial: str | None = None) -> Branch:
        """Close a branch with what it has so far; one that is closed stays as it is.

        Raises:
            UnknownBranchError: there is no such branch.
        """
        clean, draft = await self._scrubbed("error", reason), await self._draft(partial)
        return await self._do(lambda ledger: ledger.force(branch_id, clean, draft))

    async def status(
        self, *, branch_id: str | None = None, session_id: str | None = None
    ) -> Branch | None:
        """Return a branch, or the innermost active one of a session, ``None`` if it has none.

        Raises:
            FoldingError: there is no such branch, or it belongs to another session.
        """
        await self._look_for_overdue()
        try:
            found = await self._find(branch_id, session_id)
        except NoActiveBranchError:
            if session_id is None:
                raise
            return None
        if found.is_open and found.deadline <= self._clock.now():
            return await self._do(lambda ledger: ledger.expire(found.id))
        return found

    async def branches(self, session_id: str) -> list[Branch]:
        """Return the branches of a session, the oldest first, without those that are archived."""
        since = self._clock.now() - self.settings.archive_after_seconds
        found = await self.store.branches(session_id)
        return [each for each in found if each.completed_at is None or each.completed_at > since]

    def seconds_left(self, branch: Branch) -> float:
        """Return the time that a branch has left, by the clock that its deadline is of."""
        return max(0.0, branch.deadline - self._clock.now())

    async def time_out(self, branch_id: str, partial: str | None = None) -> Branch:
        """Close a branch if its time is over, with what it has so far; return its record.

        Raises:
            UnknownBranchError: there is no such branch.
        """
        draft = await self._draft(partial)
        return await self._do(lambda ledger: ledger.expire(branch_id, draft))

    async def expire(self) -> int:
        """Close all branches whose time is over, and delete old ones; return how many were closed."""
        closed, now = 0, self._clock.now()
        self._looked_at = now
        while overdue := await self.store.overdue(now, BATCH):
            for name in overdue:
                branch = await self._do(bound(_expired, branch_id=name))
                closed += branch is not None
        before = now - self.settings.delete_after_seconds
        while await self.store.prune(before, BATCH) == BATCH:
            pass
        return closed

    async def close_session(self, session_id: str, reason: str = "the session has ended") -> int:
        """Force all open branches of a session to return, the innermost first; return how many."""
        closed = 0
        while (branch := await self._innermost(session_id)) is not None:
            await self.force(branch.id, reason)
            closed += 1
        return closed

    # -- checks ------------------------------------------------------------------------------

    async def _new(
        self, description: str, prompt: str, budget: int | None, timeout: float | None
    ) -> NewBranch:
        settings = self.settings
        timeout = settings.default_timeout_seconds if timeout is None else timeout
        if budget is not None and not 1 <= budget <= settings.max_budget:
            raise InvalidBudgetError("budget", budget, 1, settings.max_budget)
        if not 0 < timeout <= settings.max_timeout_seconds:
            raise InvalidTimeoutError(timeout, settings.max_timeout_seconds)
        description = await self._text("description", description, settings.max_description_length)
        prompt = await self._text("prompt", prompt, settings.max_prompt_length)
        return NewBranch(
            id=f"br_{secrets.token_urlsafe(9)}",
            session_id="",
            session_budget=None,
            parent_id=None,
            description=description,
            prompt=prompt,
            budget=budget,
            timeout_seconds=timeout,
            tokens=estimate_tokens(description) + estimate_tokens(prompt),
            is_ready=True,
        )

    async def _placed(
        self, new: NewBranch, parent_id: str | None, session_id: str | None
    ) -> NewBranch:
        """Return the branch with its parent and its session."""
        session_id = _checked_id("session_id", session_id)
        parent_id = _checked_id("parent_branch_id", parent_id)
        if parent_id is None and session_id is not None:
            inner = await self._innermost(session_id)
            parent_id = None if inner is None else inner.id
        elif parent_id == ROOT:
            parent_id = None
        elif parent_id is not None:
            session_id = (await self._find(parent_id, session_id)).session_id
        return replace(
            new,
            parent_id=parent_id,
            session_id=session_id or f"fs_{secrets.token_urlsafe(12)}",
        )

    async def _find(self, branch_id: str | None, session_id: str | None) -> Branch:
        branch_id = _checked_id("branch_id", branch_id)
        session_id = _checked_id("session_id", session_id)
        if branch_id is None:
            found = None if session_id is None else await self._innermost(session_id)
            if found is None:
                raise NoActiveBranchError(session_id)
            return found
        branch = await self.store.branch(branch_id)
        if branch is None:
            raise UnknownBranchError(branch_id)
        if session_id is not None and branch.session_id != session_id:
            raise SessionMismatchError(branch_id)
        return branch

    async def _innermost(self, session_id: str) -> Branch | None:
        return await self._do(lambda ledger: ledger.innermost(session_id))

    async def _text(self, field: str, text: str, limit: int) -> str:
        """Return a text without control characters and secrets.

        Raises:
            FoldingError: it is blank, or too long, or cannot be searched.
        """
        clean = _CONTROL.sub("", text)
        if not clean.strip() or len(clean) > limit:
            raise InvalidTextError(field, len(clean) if clean.strip() else 0, limit)
        return await self._scrubbed(field, clean)

    async def _draft(self, partial: str | None) -> str | None:
        """Return what a branch has so far as it may leave it, ``None`` if that is nothing new."""
        clean = _CONTROL.sub("", partial or "")[: self.settings.max_message_length]
        return await self._scrubbed("partial", clean) if clean.strip() else None

    async def _scrubbed(self, field: str, text: str) -> str:
        if self._scrub is None:
            return text
        try:
            return await self._scrub(text)
        except Exception:
            logger.exception("the %s of a branch could not be searched for secrets", field)
            raise ScrubbingError(field) from None

    # -- the memory --------------------------------------------------------------------------

    async def _recall(self, branch: Branch, tokens: int) -> Sequence[InjectedItem]:
        """Return what the memory has for a branch; a memory that fails has nothing."""
        settings = self.settings
        share = int(branch.budget_total * settings.injection_budget_ratio)
        allowance = min(share, branch.budget_total - tokens - 1)
        if self._memory is None or allowance <= 0:
            return ()
        try:
            items = await self._memory.recall(
                f"{branch.description} {branch.prompt}",
                allowance=allowance,
                limit=settings.memory_max_items,
                min_confidence=settings.memory_min_confidence,
            )
        except Exception:
            logger.exception("branch %r begins without memories", branch.id)
            return ()
        return _within(items, allowance, settings.memory_max_items)

    async def _queue(self, branch: Branch) -> bool:
        if self._memory is None:
            return False
        try:
            return await self._memory.queue(branch)
        except Exception:
            logger.exception("branch %r was not queued for distillation", branch.id)
            return False

    # -- transactions ------------------------------------------------------------------------

    async def _do(self, operation: Callable[[Ledger], T]) -> T:
        """Return what ``operation`` returns in one transaction, and report what it has done.

        A refusal is committed as well, and raised then: before it, time may have closed a branch.
        """
        now, settings = self._clock.now(), self.settings

        def work(rows: BranchRows) -> tuple[T | FoldingError, list[BranchEvent]]:
            ledger = Ledger(rows, settings, now)
            try:
                return operation(ledger), ledger.events
            except FoldingError as refusal:
                return refusal, ledger.events

        value, events = await self.store.transaction(work)
        for event in events:
            self._report(event)
        if isinstance(value, FoldingError):
            raise value
        return value

    def _report(self, event: BranchEvent) -> None:
        record(event)
        if self._listener is None:
            return
        try:
            self._listener(event)
        except Exception:
            logger.exception("the listener failed at %s of branch %r", event.kind, event.branch.id)

    async def _look_for_overdue(self) -> None:
        if self._clock.now() - self._looked_at >= INTERVAL:
            await self.expire()


def _checked_id(field: str, given: str | None) -> str | None:
    if given is None:
        return None
    if not given.strip() or len(given) > MAX_ID:
        name = "session_id" if field == "session_id" else "branch_id"
        raise InvalidTextError(name, len(given) if given.strip() else 0, MAX_ID)
    return given


def _within(items: Sequence[InjectedItem], allowance: int, limit: int) -> Sequence[InjectedItem]:
    """Return the items that fit, in order, whatever a memory returns."""
    fitting: list[InjectedItem] = []
    for item in items:
        if item.tokens <= allowance and len(fitting) < limit:
            allowance -= item.tokens
            fitting.append(item)
    return fitting


def _expired(ledger: Ledger, branch_id: str) -> Branch | None:
    """Close a branch whose time is over; ``None`` if another one was faster."""
    try:
        branch = ledger.expire(branch_id)
    except UnknownBranchError:
        return None
    return branch if any(event.branch.id == branch_id for event in ledger.events) else None

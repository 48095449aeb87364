"""``BranchService``: branches as the tools of every host use them, over one store.

It checks what it is given, hands it to the ledger in one transaction, and reports afterwards what has
happened. Any number of processes may have a service over one store. A service has no task in the
background: a branch whose time is over is closed when it is next looked at, when another one needs its
place, or by :meth:`BranchService.expire`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace

from anabranch._asking.tokens import estimate_tokens
from anabranch._engine.clock import Clock, SystemClock
from anabranch.folding._branch_store import BranchStore
from anabranch.folding._errors import (
    InvalidBudgetError,
    InvalidTimeoutError,
    NoActiveBranchError,
    SessionMismatchError,
    TooManyBranchesError,
    UnknownBranchError,
)
from anabranch.folding._injection import Injection
from anabranch.folding._ledger import BranchEvent, NewBranch
from anabranch.folding._ledgers import Ledgers
from anabranch.folding._memory_store import MemoryBranches
from anabranch.folding._owners import belongs_to, stored_name
from anabranch.folding._ports import BranchMemory, InjectedItem, Scrubber
from anabranch.folding._records import Branch
from anabranch.folding._settings import FoldingSettings
from anabranch.folding._texts import BranchTexts, checked_id

__all__ = ["ROOT", "BranchService", "CreatedBranch", "ReturnedBranch"]

ROOT = "root"
"""The parent of a branch directly below its session, where this is not the default."""


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

    Attributes:
        store: where branches are.
        settings: the limits of this service.
        principal: whose view this is; ``None`` for the host's own, which finds everything.
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
        self._injection = Injection(self.settings, memory)
        self._texts = BranchTexts(self.settings, scrub)
        self._clock = clock or SystemClock()
        self._ledgers = Ledgers(self.store, self.settings, self._clock, listener)
        self.principal: str | None = None

    def of(self, principal: str) -> BranchService:
        """Return this service for one of its callers, who finds its own sessions and branches alone.

        ``principal`` is empty for callers that are not distinguished.
        """
        view = copy(self)
        view.principal = principal
        return view

    async def create(  # noqa: PLR0913 - a branch and its place, by keyword
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
        parent_reserved: int = 0,
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
            parent_reserved: tokens of the parent that its open requests may still take.

        Raises:
            FoldingError: it is invalid, or a limit does not allow it; nothing was created.
        """
        new = await self._new(description, prompt, budget, timeout_seconds)
        recalls = inject_memories and self._injection.is_possible
        new = replace(
            await self._placed(new, parent_branch_id, session_id),
            session_budget=self.settings.session_budget if is_metered else None,
            is_ready=not recalls,
            parent_reserved=parent_reserved,
        )
        await self._ledgers.look_for_overdue()
        try:
            branch, left = await self._ledgers.do(lambda ledger: ledger.create(new))
        except TooManyBranchesError:
            if not await self.expire():
                raise
            branch, left = await self._ledgers.do(lambda ledger: ledger.create(new))
        items: Sequence[InjectedItem] = ()
        if recalls:
            items = await self._injection.recall(branch, new.tokens)
            tokens = new.tokens + sum(item.tokens for item in items)
            names = [item.id for item in items]
            branch = await self._ledgers.do(lambda ledger: ledger.activate(new.id, names, tokens))
        return CreatedBranch(branch, items, left)

    async def complete(
        self,
        message: str,
        *,
        branch_id: str | None = None,
        session_id: str | None = None,
        extract_memory: bool = False,
        transcript: str = "",
        tokens: int | None = None,
    ) -> ReturnedBranch:
        """Close a branch with the message that it returns; its open children are forced first.

        Args:
            message: what it returns, stored without its secrets.
            branch_id: the branch; by default, the innermost active one of the session.
            session_id: its session.
            extract_memory: let the memory learn from it.
            transcript: what was done in it, for the memory; by default, what it has reported last.
            tokens: what the message has used; by default, an estimate.

        Raises:
            FoldingError: the message is invalid, or there is no such active branch.
        """
        clean = await self._texts.checked("message", message, self.settings.max_message_length)
        used = estimate_tokens(clean) if tokens is None else tokens
        found = await self._find(branch_id, session_id)
        branch = await self._ledgers.do(
            lambda ledger: ledger.complete(found.id, clean, used, extract_memory=extract_memory)
        )
        queued = extract_memory and await self._injection.queue(branch, transcript)
        return ReturnedBranch(branch, queued)

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
        draft = await self._texts.draft(partial)
        return await self._ledgers.do(
            lambda ledger: ledger.charge(found.id, tokens, draft, forces=forces)
        )

    async def force(self, branch_id: str, reason: str, partial: str | None = None) -> Branch:
        """Close a branch with what it has so far; one that is closed stays as it is.

        Raises:
            UnknownBranchError: there is no such branch.
        """
        clean, draft = await self._texts.scrubbed("error", reason), await self._texts.draft(partial)
        return await self._ledgers.do(lambda ledger: ledger.force(branch_id, clean, draft))

    async def status(
        self, *, branch_id: str | None = None, session_id: str | None = None
    ) -> Branch | None:
        """Return a branch, or the innermost active one of a session, ``None`` if it has none.

        Raises:
            FoldingError: there is no such branch, or it belongs to another session.
        """
        await self._ledgers.look_for_overdue()
        try:
            found = await self._find(branch_id, session_id)
        except NoActiveBranchError:
            if session_id is None:
                raise
            return None
        if found.is_open and found.deadline <= self._clock.now():
            return await self._ledgers.do(lambda ledger: ledger.expire(found.id))
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
        draft = await self._texts.draft(partial)
        return await self._ledgers.do(lambda ledger: ledger.expire(branch_id, draft))

    async def expire(self) -> int:
        """Close all branches whose time is over, and delete old ones; return how many were closed."""
        return await self._ledgers.expire()

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
        description = await self._texts.checked(
            "description", description, settings.max_description_length
        )
        prompt = await self._texts.checked("prompt", prompt, settings.max_prompt_length)
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
        session_id = self._session(session_id)
        parent_id = checked_id("parent_branch_id", parent_id)
        if parent_id is None and session_id is not None:
            inner = await self._innermost(session_id)
            parent_id = None if inner is None else inner.id
        elif parent_id == ROOT:
            parent_id = None
        elif parent_id is not None:
            session_id = (await self._in_session(parent_id, session_id)).session_id
        return replace(
            new,
            parent_id=parent_id,
            session_id=session_id or stored_name(self.principal, f"fs_{secrets.token_urlsafe(12)}"),
        )

    def _session(self, session_id: str | None) -> str | None:
        """Return the name under which a session is stored that a caller names."""
        checked = checked_id("session_id", session_id)
        return None if checked is None else stored_name(self.principal, checked)

    async def _find(self, branch_id: str | None, session_id: str | None) -> Branch:
        branch_id = checked_id("branch_id", branch_id)
        stored = self._session(session_id)
        if branch_id is not None:
            return await self._in_session(branch_id, stored)
        found = None if stored is None else await self._innermost(stored)
        if found is None:
            raise NoActiveBranchError(session_id)
        return found

    async def _in_session(self, branch_id: str, session_id: str | None) -> Branch:
        branch = await self.store.branch(branch_id)
        if branch is None or not belongs_to(self.principal, branch.session_id):
            raise UnknownBranchError(branch_id)
        if session_id is not None and branch.session_id != session_id:
            raise SessionMismatchError(branch_id)
        return branch

    async def _innermost(self, session_id: str) -> Branch | None:
        return await self._ledgers.do(lambda ledger: ledger.innermost(session_id))

"""``BranchService``: branches as the tools of every host use them, over one store.

It checks what it is given, hands it to the ledger in one transaction, and reports afterwards what has
happened. Any number of processes may have a service over one store. A service starts no task: a branch
whose time is over is closed when it is next looked at, when another one needs its place, or while
:meth:`BranchService.run` does so in its host.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from anabranch._aio import Clock, SystemClock
from anabranch._asking.tokens import estimate_tokens
from anabranch._durable.engine import Engine
from anabranch.folding._admission import Owner
from anabranch.folding._branch_store import Branch, BranchStore, NewBranch
from anabranch.folding._errors import (
    InvalidBudgetError,
    InvalidTimeoutError,
    TooManyBranchesError,
)
from anabranch.folding._ledger import BranchEvent, Ledger, checked_branch
from anabranch.folding._ledgers import Ledgers
from anabranch.folding._memory import (
    BranchMemory,
    InjectedItem,
    Injection,
    MemoryOfCallers,
    Scrubber,
)
from anabranch.folding._memory_store import MemoryBranches
from anabranch.folding._settings import FoldingSettings
from anabranch.folding._texts import BranchTexts, checked_id

T = TypeVar("T")

EXPIRE_EVERY = 1.0
"""Seconds from one look for branches whose time is over to the next, where that is done always."""


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
        memory: BranchMemory | MemoryOfCallers | None = None,
        scrub: Scrubber | None = None,
        clock: Clock | None = None,
        listener: Callable[[BranchEvent], None] | None = None,
    ) -> None:
        self.store: BranchStore = store or MemoryBranches()
        self.settings: FoldingSettings = settings or FoldingSettings()
        self._injection = Injection(self.settings, memory)
        self._texts = BranchTexts(self.settings, scrub)
        self._clock = clock or SystemClock()
        self._ledgers = Ledgers(self.store, self.settings, self._clock, listener, self._learn)
        self.principal: str | None = None

    def of(self, principal: str) -> BranchService:
        """Return this service for one of its callers, who finds its own sessions and branches alone.

        Its branches begin with the caller's memories. ``principal`` is empty for callers that are not
        distinguished.
        """
        view = copy(self)
        view.principal = principal
        view._injection = self._injection.of(principal)  # noqa: SLF001 - of this class
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
        extract_memory: bool = False,
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
            extract_memory: let the memory learn from it, however it ends.

        Raises:
            FoldingError: it is invalid, or a limit does not allow it; nothing was created.
        """
        recalls = inject_memories and self._injection.is_possible
        timeout = self._checked_numbers(budget, timeout_seconds)
        texts, settings = self._texts, self.settings
        description = await texts.checked(
            "description", description, settings.max_description_length
        )
        prompt = await texts.checked("prompt", prompt, settings.max_prompt_length)
        new = NewBranch(
            id=f"br_{secrets.token_urlsafe(9)}",
            session_id=self._owner.stored_name(f"fs_{secrets.token_urlsafe(12)}"),
            session_budget=self.settings.session_budget if is_metered else None,
            parent_id=None,
            description=description,
            prompt=prompt,
            budget=budget,
            timeout_seconds=timeout,
            tokens=estimate_tokens(description) + estimate_tokens(prompt),
            is_ready=not recalls,
            extract_memory=extract_memory,
            owner=self.principal,
            parent_reserved=parent_reserved,
        )
        parent_id = checked_id("parent_branch_id", parent_branch_id)
        stored = self._session(session_id)
        await self._ledgers.look_for_overdue()

        def creating(ledger: Ledger) -> tuple[Branch, int | None]:
            return ledger.create(ledger.placed(new, parent_id, stored))

        try:
            branch, left = await self._do(creating)
        except TooManyBranchesError:
            if not await self._ledgers.expire():
                raise
            branch, left = await self._do(creating)
        items: Sequence[InjectedItem] = ()
        if recalls:
            items = await self._injection.recall(branch, new.tokens)
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
            FoldingError: if the message is invalid, or there is no such active branch.
        """
        clean = await self._texts.checked("message", message, self.settings.max_message_length)
        used = estimate_tokens(clean) if tokens is None else tokens
        find = self._finding(branch_id, session_id)
        done = await self._ledgers.do(
            self._owner,
            lambda ledger: ledger.complete(
                find(ledger), clean, used, extract_memory=extract_memory
            ),
            transcript,
        )
        return ReturnedBranch(done.value, done.is_learned and done.value.extract_memory)

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
            FoldingError: if there is no such active branch, or ``tokens`` is negative.
        """
        if tokens < 0:
            raise InvalidBudgetError("tokens", tokens, 0, None)
        find = self._finding(branch_id, session_id)
        draft = await self._texts.draft(partial)
        return await self._do(
            lambda ledger: ledger.charge(find(ledger), tokens, draft, forces=forces)
        )

    async def force(
        self,
        branch_id: str,
        reason: str,
        partial: str | None = None,
        *,
        extract_memory: bool = False,
        transcript: str = "",
    ) -> Branch:
        """Close a branch with what it has so far; one that is closed stays as it is.

        Args:
            branch_id: the branch.
            reason: why.
            partial: what it has so far; by default, what it has reported last.
            extract_memory: let the memory learn from it, also if that was not asked for before.
            transcript: as in :meth:`complete`.

        Raises:
            UnknownBranchError: if there is no such branch.
        """
        clean, draft = await self._texts.scrubbed("error", reason), await self._texts.draft(partial)
        return await self._do(
            lambda ledger: ledger.force(branch_id, clean, draft, extract_memory=extract_memory),
            transcript,
        )

    async def status(
        self, *, branch_id: str | None = None, session_id: str | None = None
    ) -> Branch | None:
        """Return a branch, or the innermost active one of a session, ``None`` if it has none.

        Raises:
            FoldingError: if there is no such branch, or it belongs to another session.
        """
        find = self._finding(branch_id, session_id)
        await self._ledgers.look_for_overdue()
        stored = self._session(session_id)
        if branch_id is None and stored is not None:
            return await self._do(lambda ledger: ledger.innermost(stored))
        found = None if branch_id is None else await self._ledgers.branch(self._owner, branch_id)
        if found is None or (found.is_open and found.deadline <= self._clock.now()):
            return await self._do(lambda ledger: ledger.expire(find(ledger)))
        return checked_branch(found, found.id, stored)

    async def branches(self, session_id: str) -> list[Branch]:
        """Return the branches of a session, the oldest first, without those that are archived."""
        since = self._clock.now() - self.settings.archive_after_seconds
        found = await self._ledgers.branches(self._owner, session_id)
        return [each for each in found if each.completed_at is None or each.completed_at > since]

    def seconds_left(self, branch: Branch) -> float:
        """Return the time that a branch has left, by the clock that its deadline is of."""
        return max(0.0, branch.deadline - self._clock.now())

    async def time_out(
        self, branch_id: str, partial: str | None = None, *, transcript: str = ""
    ) -> Branch:
        """Close a branch if its time is over, with what it has so far; return its record.

        Args:
            branch_id: the branch.
            partial: what it has so far.
            transcript: as in :meth:`complete`.

        Raises:
            UnknownBranchError: if there is no such branch.
        """
        draft = await self._texts.draft(partial)
        return await self._do(lambda ledger: ledger.expire(branch_id, draft), transcript)

    async def expire(self) -> int:
        """Close all branches whose time is over, and delete old ones; return how many were closed.

        The view of a caller counts its own. The memory has then learned from them.
        """
        closed = await self._ledgers.expire()
        await self._ledgers.all_learned()
        return sum(self._owner.owns(branch.session_id) for branch in closed)

    async def run(self, engine: Engine) -> NoReturn:
        """Close each branch soon after its time is over, until cancelled.

        Of all processes with this ``engine``, one does.
        """
        await engine.every("branches out of time", EXPIRE_EVERY, self.expire)

    async def close_session(self, session_id: str, reason: str = "the session has ended") -> int:
        """Force all open branches of a session to return, the innermost first; return how many."""
        closed, stored = 0, self._owner.stored_name(session_id)
        while branch := await self._do(lambda ledger: ledger.innermost(stored)):
            await self.force(branch.id, reason)
            closed += 1
        return closed

    @property
    def _owner(self) -> Owner:
        return Owner(self.principal)

    async def _do(self, operation: Callable[[Ledger], T], transcript: str | None = None) -> T:
        return (await self._ledgers.do(self._owner, operation, transcript)).value

    async def _learn(self, branch: Branch, transcript: str) -> bool:
        """Let the memory of its owner learn from a branch, also when another has ended it."""
        view = self if branch.owner is None else self.of(branch.owner)
        return await view._injection.queue(branch, transcript)  # noqa: SLF001 - of this class

    # -- checks ------------------------------------------------------------------------------

    def _checked_numbers(self, budget: int | None, timeout: float | None) -> float:
        """Return the timeout of a branch.

        Raises:
            FoldingError: if its budget or its timeout is out of range.
        """
        settings = self.settings
        timeout = settings.default_timeout_seconds if timeout is None else timeout
        if budget is not None and not 1 <= budget <= settings.max_budget:
            raise InvalidBudgetError("budget", budget, 1, settings.max_budget)
        if not 0 < timeout <= settings.max_timeout_seconds:
            raise InvalidTimeoutError(timeout, settings.max_timeout_seconds)
        return timeout

    def _session(self, session_id: str | None) -> str | None:
        """Return the name under which a session is stored that a caller names."""
        checked = checked_id("session_id", session_id)
        return None if checked is None else self._owner.stored_name(checked)

    def _finding(self, branch_id: str | None, session_id: str | None) -> Callable[[Ledger], str]:
        """Return what finds the id of a branch that a caller names."""
        this, stored = checked_id("branch_id", branch_id), self._session(session_id)
        return lambda ledger: ledger.find(this, stored)

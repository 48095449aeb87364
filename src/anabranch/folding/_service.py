"""``BranchService``: creates, charges and closes branches for the tools of every host.

A service starts no task: the next look at an overdue branch closes it, or :meth:`BranchService.run`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from anabranch._aio import Clock, SystemClock, run_every
from anabranch._asking import estimate_tokens
from anabranch.folding._admission import Owner
from anabranch.folding._branch_store import Branch, BranchStore, NewBranch
from anabranch.folding._errors import (
    BranchTexts,
    FoldingError,
    Scrubber,
    TooManyBranchesError,
    checked_id,
    tokens_out_of_range,
)
from anabranch.folding._ledger import BranchEvent, Ledger, checked_branch
from anabranch.folding._ledgers import Ledgers
from anabranch.folding._memory import BranchMemory, InjectedItem, Injection, MemoryOfCallers
from anabranch.folding._settings import FoldingSettings

T = TypeVar("T")

EXPIRE_EVERY = 1.0
"""Seconds between two looks of :meth:`BranchService.run` for overdue branches."""


@dataclass(frozen=True, slots=True)
class CreatedBranch:
    """A new branch, as :meth:`BranchService.create` returns it.

    Attributes:
        branch: the record of the branch.
        injected: the notes that the branch was given.
        parent_budget_remaining: the parent's remaining tokens; ``None`` if the parent has no limit.
    """

    branch: Branch
    injected: Sequence[InjectedItem]
    parent_budget_remaining: int | None


@dataclass(frozen=True, slots=True)
class ReturnedBranch:
    """The record of a closed branch, and whether the branch was queued for the memory."""

    branch: Branch
    memory_queued: bool


class BranchService:
    """Creates branches for subtasks, counts their tokens, and closes them.

    Any number of processes may have a service over one store.

    Args:
        store: stores the branches; ``open_branch_store("memory:")`` keeps them in this process.
        settings: the defaults and limits.
        memory: gives notes to new branches, and learns from ended branches; by default, no memory.
        scrub: removes secrets from texts before they are stored or leave a branch; by default,
            texts stay unchanged.
        clock: the time; by default, the system's.
        listener: called with each event after the event is stored; errors of the listener are
            logged.

    Attributes:
        store: the store of the branches.
        settings: the limits of this service.
        principal: the caller whose branches this service finds; ``None`` for all callers' branches.
    """

    def __init__(
        self,
        store: BranchStore,
        settings: FoldingSettings | None = None,
        *,
        memory: BranchMemory | MemoryOfCallers | None = None,
        scrub: Scrubber | None = None,
        clock: Clock | None = None,
        listener: Callable[[BranchEvent], None] | None = None,
    ) -> None:
        self.store: BranchStore = store
        self.settings: FoldingSettings = settings or FoldingSettings()
        self._injection = Injection(self.settings, memory)
        self._texts = BranchTexts(self.settings, scrub)
        self._clock = clock or SystemClock()
        self._ledgers = Ledgers(self.store, self.settings, self._clock, listener, self._learn)
        self.principal: str | None = None

    def of(self, principal: str) -> BranchService:
        """Return a service for one caller, which finds only that caller's sessions and branches.

        New branches get notes from the caller's memory. ``principal`` is empty if callers are not
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
        """Create a branch for a subtask, with notes from earlier work that help with the subtask.

        Args:
            description: a description of the subtask.
            prompt: the instructions of the subtask.
            budget: the tokens of the branch; by default, those of the settings, or half of the
                parent's remaining tokens if that is less.
            inject_memories: whether the branch gets notes from the memory.
            timeout_seconds: the time limit of the branch, in seconds; by default, the limit in the
                settings.
            parent_branch_id: the enclosing branch, or ``root``; by default, the innermost active
                branch of the session.
            session_id: the session; by default, the parent's session, or a new session.
            is_metered: whether a new session has the token budget of the settings; otherwise the
                service does not limit its tokens.
            parent_reserved: tokens of the parent that its open requests may still take.
            extract_memory: whether the memory learns from the branch, also if it fails.

        Raises:
            FoldingError: if an argument is invalid, or a limit refuses the branch. No branch is
                created then.
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
        """Close a branch with the message that it returns, after closing its open children.

        Args:
            message: the message to return, which is stored without secrets.
            branch_id: the branch; by default, the innermost active branch of the session.
            session_id: the session of the branch.
            extract_memory: whether the memory learns from the branch.
            transcript: the transcript of the branch, for the memory; by default, its last partial
                result.
            tokens: the tokens of the message; by default, an estimate.

        Raises:
            FoldingError: if the message is invalid, or the branch is not active.
        """
        clean = await self._texts.checked("message", message, self.settings.max_message_length)
        used = estimate_tokens(clean) if tokens is None else tokens
        find = self._finding(branch_id, session_id)
        branch, is_learned = await self._ledgers.do(
            self._owner,
            lambda ledger: ledger.complete(
                find(ledger), clean, used, extract_memory=extract_memory
            ),
            transcript,
        )
        return ReturnedBranch(branch, is_learned and branch.extract_memory)

    async def charge(
        self,
        tokens: int,
        *,
        branch_id: str | None = None,
        session_id: str | None = None,
        partial: str | None = None,
        forces: bool = True,
    ) -> Branch:
        """Charge tokens to a branch, which closes if its budget is used up; return its record.

        Args:
            tokens: the tokens that the branch has used since the last charge.
            branch_id: the branch; by default, the innermost active branch of the session.
            session_id: the session of the branch.
            partial: the partial result, which becomes the result if the branch is forced to return.
            forces: whether this method closes a branch whose budget is used up; otherwise your code
                must close it.

        Raises:
            FoldingError: if the branch is not active, or ``tokens`` is negative.
        """
        if tokens < 0:
            raise tokens_out_of_range("tokens", tokens, 0, None)
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
        """Close a branch early, with its last partial result; leave a closed branch unchanged.

        Args:
            branch_id: the branch.
            reason: the reason, which becomes the branch's error.
            partial: the partial result; by default, the last reported partial result.
            extract_memory: whether the memory learns from the branch, even if the branch was
                created without learning.
            transcript: as for :meth:`complete`.

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
        """Return a branch, or a session's innermost active branch (``None`` if none is active).

        Raises:
            FoldingError: if the branch does not exist, or belongs to another session.
        """
        find = self._finding(branch_id, session_id)
        await self._ledgers.look_for_overdue()
        stored = self._session(session_id)
        if branch_id is None and stored is not None:
            return await self._do(lambda ledger: ledger.innermost(stored))
        found = None if branch_id is None else self._owner.own(await self.store.branch(branch_id))
        if found is None or (found.is_open and found.deadline <= self._clock.now()):
            return await self._do(lambda ledger: ledger.present(find(ledger)))
        return checked_branch(found, found.id, stored)

    async def branches(self, session_id: str) -> list[Branch]:
        """Return the branches of a session, without archived branches, the oldest first."""
        since = self._clock.now() - self.settings.archive_after_seconds
        found = await self.store.branches(self._owner.stored_name(session_id))
        return [each for each in found if each.completed_at is None or each.completed_at > since]

    def seconds_left(self, branch: Branch) -> float:
        """Return the seconds until the deadline of a branch."""
        return max(0.0, branch.deadline - self._clock.now())

    async def time_out(
        self, branch_id: str, partial: str | None = None, *, transcript: str = ""
    ) -> Branch:
        """Close a branch whose deadline has passed, with its partial result; return its record.

        Args:
            branch_id: the branch.
            partial: the partial result.
            transcript: as for :meth:`complete`.

        Raises:
            UnknownBranchError: if there is no such branch.
        """
        draft = await self._texts.draft(partial)
        return await self._do(lambda ledger: ledger.present(branch_id, draft), transcript)

    async def expire(self) -> int:
        """Close all overdue branches, and delete old branches; return how many were closed.

        A service for one caller counts only that caller's branches. The branches are queued for the
        memory before the method returns.
        """
        closed = await self._ledgers.expire()
        await self._ledgers.all_learned()
        return sum(self._owner.owns(branch.session_id) for branch in closed)

    async def run(self) -> NoReturn:
        """Close each branch soon after its deadline; run until cancelled."""
        await run_every(self._clock, EXPIRE_EVERY, "expire branches", self.expire)

    @property
    def _owner(self) -> Owner:
        return Owner(self.principal)

    async def _do(self, operation: Callable[[Ledger], T], transcript: str | None = None) -> T:
        value, _ = await self._ledgers.do(self._owner, operation, transcript)
        return value

    async def _learn(self, branch: Branch, transcript: str) -> bool:
        view = self if branch.owner is None else self.of(branch.owner)
        return await view._injection.queue(branch, transcript)  # noqa: SLF001 - of this class

    # -- checks ------------------------------------------------------------------------------

    def _checked_numbers(self, budget: int | None, timeout: float | None) -> float:
        settings = self.settings
        timeout = settings.default_timeout_seconds if timeout is None else timeout
        if budget is not None and not 1 <= budget <= settings.max_budget:
            raise tokens_out_of_range("budget", budget, 1, settings.max_budget)
        if not 0 < timeout <= settings.max_timeout_seconds:
            most = settings.max_timeout_seconds
            message = (
                f"timeout_seconds is {timeout:g}; it must be more than 0 and at most {most:g}."
            )
            raise FoldingError("FOLD023", message)
        return timeout

    def _session(self, session_id: str | None) -> str | None:
        checked = checked_id("session_id", session_id)
        return None if checked is None else self._owner.stored_name(checked)

    def _finding(self, branch_id: str | None, session_id: str | None) -> Callable[[Ledger], str]:
        this, stored = checked_id("branch_id", branch_id), self._session(session_id)
        return lambda ledger: ledger.find(this, stored)

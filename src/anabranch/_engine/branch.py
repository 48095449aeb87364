"""Branches of a call: their limits, token budgets and deadlines."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, NoReturn, TypeVar

from anabranch._aio import Clock
from anabranch._budget import Account, BudgetError, Limits, Reservation
from anabranch._engine.journal import Entry, Journal
from anabranch.errors import BranchDepthError, BranchTimeoutError, BranchTokenError, error_to_json


class Budgets:
    """The token budgets of one run of ``journal``, and the reservations of its open requests.

    The admission of a request depends on the tokens that others have spent and reserved by then. In a
    replay, these may be settled: so a refusal is recorded, and the journal keeps a reservation until
    it is settled. Time decides one case: of two requests that waited for different things, the first
    may take the tokens that the other lacks.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._spent = journal.spent()
        self._reserved = {
            step_id: Reservation(tokens) for step_id, (tokens, _) in journal.reserved.items()
        }

    def branch(
        self, parent: Branch | None, path: str, own: Limits, *, is_tool: bool = False
    ) -> Branch:
        """Return the branch at ``path``, with the tokens that earlier rounds spent and reserved."""
        # The root's keys do not contain its path, so the root has spent the sum of all.
        inside = "" if parent is None else f"{path}/"
        branch = Branch(parent, path, own, self._spent.get(inside[:-1], 0), is_tool=is_tool)
        for step_id in self._reserved_in(inside):
            self._reserved[step_id].hold_in(branch.account)
        return branch

    def reserve(self, step_id: str, branch: Branch, prompt: int, reply: int) -> int:
        """Reserve tokens for a request; return the number for its reply, at most ``reply``."""
        journal = self._journal
        if step_id in journal.reserved:  # in an earlier round, for this same request
            return journal.reserved[step_id][1]
        if step_id in journal.pending:  # asked before there was a budget
            return reply
        try:
            reservation = branch.account.reserve(prompt + 1, prompt + reply)
        except BudgetError as refusal:
            raise _as_branch_error(refusal) from None
        self._reserved[step_id] = reservation
        granted = reservation.tokens - prompt
        journal.reserved[step_id] = (reservation.tokens, granted)
        return granted

    def settle(self, step_id: str, entry: Entry, branch: Branch, tokens: int) -> None:
        """Charge the tokens of ``entry`` to ``branch`` and every ancestor, once.

        If a budget is exceeded, the ``BranchTokenError`` becomes the entry's outcome.
        """
        # Every round would charge the answer again: test_a_question_is_charged_once_over_all_rounds.
        if entry.tokens is not None:
            return
        entry.tokens = tokens
        self.release(step_id)
        branch.account.settle(None, tokens)
        try:
            branch.account.check()
        except BudgetError as refusal:
            error = _as_branch_error(refusal)
            # A replay would find the answer, and take another way:
            # test_an_exceeded_budget_is_the_answer_to_the_question_in_every_replay.
            entry.error = error_to_json(error)
            raise error from None

    def release(self, step_id: str) -> None:
        self._journal.reserved.pop(step_id, None)
        if (reservation := self._reserved.pop(step_id, None)) is not None:
            reservation.release()

    def release_in(self, path: str) -> None:
        for step_id in self._reserved_in(f"{path}/"):
            self.release(step_id)

    def _reserved_in(self, prefix: str) -> list[str]:
        return [step_id for step_id in self._reserved if step_id.startswith(prefix)]


def _as_branch_error(refusal: BudgetError) -> BranchTokenError:
    account = refusal.account
    return BranchTokenError(account.name, refusal.wanted, account.max_tokens or 0)


T = TypeVar("T")


class Deadline:
    """The time until which the body of the branch at ``path`` may run, ``timeout`` seconds in all."""

    def __init__(
        self, path: str, timeout: float, clock: Clock, is_replaying: Callable[[str], bool]
    ) -> None:
        self.path: str = path
        self.timeout: float = timeout
        self.expired: bool = False
        self._clock = clock
        self._is_replaying = is_replaying
        self._timeout = asyncio.timeout(None)
        self._over = asyncio.Event()
        self._task: asyncio.Task[Any] | None = None

    async def run(self, body: Awaitable[T], when: float) -> T:
        """Return the value of ``body``; if it ends after ``when``, raise ``BranchTimeoutError``."""
        self._task = asyncio.current_task()
        try:
            async with self._timeout:
                if self._clock.now() >= when:
                    self.expired = True
                    value = await body
                else:
                    timer = self._clock.call_at(when, self._on_deadline)
                    try:
                        value = await body
                    finally:
                        timer.cancel()
        except Exception as error:
            if self.expired:
                cause = None if isinstance(error, TimeoutError) else error
                raise BranchTimeoutError(self.path, self.timeout) from cause
            raise
        finally:
            self._over.set()
        if self.expired:  # the body has returned, but thanks to an answer that came too late
            raise BranchTimeoutError(self.path, self.timeout)
        return value

    def _on_deadline(self) -> None:
        self.expired = True
        # A replay that is cut off would miss steps, and their undos:
        # test_a_replay_passes_records_after_a_deadline_in_its_middle.
        if not self._is_replaying(self.path):
            self._fire()

    def _fire(self) -> None:
        # A replay lets the body end late, and a task that it has left behind comes here afterwards:
        # test_a_task_left_behind_by_a_replay_past_the_deadline_can_do_nothing.
        if not (self._over.is_set() or self._timeout.expired()):
            self._timeout.reschedule(asyncio.get_running_loop().time())

    async def stop(self) -> NoReturn:
        """End the branch's body and the running strand (a task of the call): the time is over.

        A strand that outlives the body, or a body that has swallowed its cancellation, gets a
        ``BranchTimeoutError`` in place of the cancellation.
        """
        swallowed = self._timeout.expired() and asyncio.current_task() is self._task
        self._fire()
        if not swallowed:
            await self._over.wait()
        raise BranchTimeoutError(self.path, self.timeout)


class Branch:
    """One branch of a running call.

    Attributes:
        tool_depth: depth of the enclosing tool, from which its code counts ``max_depth``.
        limits: the tightest of all enclosing limits; ``timeout`` is the branch's own.
        ids: ids of the entries inside: steps, and sub-branches that were folded into one entry.
        noticed: scope paths inside from which notices were sent.
    """

    __slots__ = (
        "account", "deadline", "depth", "ids", "limits", "noticed", "parent", "path",
        "timeout", "tool_depth",
    )  # fmt: skip

    def __init__(
        self,
        parent: Branch | None,
        path: str,
        own: Limits,
        spent: int = 0,
        *,
        is_tool: bool = False,
    ) -> None:
        outer = None if parent is None else parent.account
        self.parent: Branch | None = parent
        self.path: str = path
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.tool_depth: int = self.depth if parent is None or is_tool else parent.tool_depth
        if self.tool_depth and own.max_depth is not None:
            own = replace(own, max_depth=self.tool_depth + own.max_depth)
        self.limits: Limits = own if parent is None else parent.limits.narrowed(own)
        self.timeout: float | None = own.timeout
        self.account: Account = Account(path, outer, max_tokens=own.max_tokens, tokens=spent)
        self.deadline: Deadline | None = None
        self.ids: list[str] = []
        self.noticed: list[str] = []

    @property
    def is_expired(self) -> bool:
        return self.deadline is not None and self.deadline.expired

    def check_depth(self) -> None:
        allowed = self.limits.max_depth
        if allowed is not None and self.depth > allowed:
            raise BranchDepthError(self.depth, allowed)

    async def check_deadlines(self) -> None:
        """End the running strand (a task of the call), as :meth:`Deadline.stop` says, after a deadline."""
        branch: Branch | None = self
        while branch is not None:
            if branch.deadline is not None and branch.deadline.expired:
                await branch.deadline.stop()
            branch = branch.parent

"""Runs sub-branches in the current strand, and folds each into one entry when it has ended.

A journal grows with open branches, and not with finished ones. A branch folds if the value in its
record reads back as an equal value, and no undo would be lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias, TypeVar

from anabranch._aio import Clock
from anabranch._budget import Limits
from anabranch._engine.branch import Branch, Deadline
from anabranch._engine.codec import Codec, same
from anabranch._engine.compensations import Compensations
from anabranch._engine.cursor import ReplayCursor
from anabranch._engine.functions import EXIT_AS_ERROR
from anabranch._engine.journal import Entry
from anabranch._engine.recorder import Observe, unobserved
from anabranch._engine.scheduler import Scheduler
from anabranch._engine.strands import Scope
from anabranch.errors import SerializationError, error_from_json, error_to_json

T = TypeVar("T")

Watch: TypeAlias = Callable[[str, bool], Awaitable[None]]
"""Receives the path of a branch, and whether the branch has opened (else it has ended)."""


class Branches:
    """Runs the branches of one call; ``watch`` gets each, again in each round until it is folded."""

    def __init__(
        self,
        cursor: ReplayCursor,
        scheduler: Scheduler,
        compensations: Compensations,
        clock: Clock,
        observe: Observe = unobserved,
    ) -> None:
        self._cursor = cursor
        self._scheduler = scheduler
        self._compensations = compensations
        self._clock = clock
        self._observe = observe
        self.watch: Watch | None = None

    async def run(
        self,
        path: str,
        own: Limits,
        body: Callable[[Branch], Awaitable[T]],
        codec: Codec,
        *,
        asked: str = "",
        is_tool: bool = False,
    ) -> T:
        """Run ``body`` in a sub-branch at ``path``, or return the value of its folded entry.

        The branch that awaits this operation encloses the sub-branch, and its limits hold, even if
        another branch has made the operation. The ``max_depth`` of ``own`` counts from the
        enclosing tool, or from the sub-branch itself if it ``is_tool``.
        """
        cursor, scheduler = self._cursor, self._scheduler
        strand = scheduler.strand()
        scope = strand.scope
        enclosing = scope.branch
        folded = cursor.recall(path, "branch", asked, enclosing)
        if folded is not None:
            cursor.reached.unentered.discard(path)
            if folded.error is not None:
                raise error_from_json(folded.error)
            return codec.decode(path, folded.value)  # type: ignore[no-any-return]
        # A branch in a ``finally`` block would run in a round that is over:
        # test_a_branch_in_a_finally_block_is_not_entered_while_the_round_ends.
        if scheduler.closing:
            await scheduler.refuse(path)
        cursor.reached.unentered.discard(path)
        branch = cursor.budgets.branch(enclosing, path, own, is_tool=is_tool)
        branch.check_depth()
        await self._report(path, is_open=True)
        # A memory that outlived the branch would be missing in a replay that finds the branch folded.
        strand.scope = Scope(branch, path, scope.memory)
        try:
            try:
                with EXIT_AS_ERROR, self._observe("branch", path):
                    value = await self.start(branch, body)
            finally:
                strand.scope = scope
        except asyncio.CancelledError:
            if not scheduler.suspending:
                cursor.cancel(path)
            self._leave(branch, enclosing)
            raise
        except Exception as error:
            known = error_to_json(error)
            if known is None or not self._fold(
                branch, Entry("branch", asked, error=known), enclosing
            ):
                self._leave(branch, enclosing)
            await self._report(path, is_open=False)
            raise
        await self._report(path, is_open=False)
        entry, again = _read_back(path, asked, value, codec)
        if entry is None or not self._fold(branch, entry, enclosing):
            self._leave(branch, enclosing)
            return value
        return again  # every replay reads this value

    async def _report(self, path: str, *, is_open: bool) -> None:
        """Report that a branch has opened, or has ended; the round waits for the report."""
        if self.watch is None or self._scheduler.closing:
            return
        strand = self._scheduler.strand()
        # A round that ends during a report would deliver the report again:
        # test_branches_are_reported_as_they_open_and_end_within_a_round.
        strand.effects += 1
        try:
            await self.watch(path, is_open)
        finally:
            strand.effects -= 1
            self._scheduler.stir()

    def start(self, branch: Branch, body: Callable[[Branch], Awaitable[T]]) -> Awaitable[T]:
        """Return an awaitable that runs ``body`` as ``branch`` in this strand, until the deadline."""
        # A coroutine around the body would take memory for as long as the branch runs.
        if branch.timeout is None:
            return body(branch)
        deadlines = self._cursor.journal.deadlines
        # Counted again in every round, a deadline would never pass:
        # test_a_deadline_lasts_over_rounds.
        when = deadlines.setdefault(branch.path, self._clock.now() + branch.timeout)
        if when is None:  # done in time in an earlier round; only replayed now
            return body(branch)
        branch.deadline = Deadline(
            branch.path, branch.timeout, self._clock, self._cursor.reached.is_replaying
        )
        return branch.deadline.run(body(branch), when)

    def _fold(self, branch: Branch, entry: Entry, into: Branch) -> bool:
        """Fold ``branch`` into ``entry``; return ``False`` if an undo would be lost."""
        # A value of a ``finally`` block would replace entries that the next round needs:
        # test_a_branch_that_fails_while_its_round_ends_is_not_folded.
        if self._scheduler.closing:  # the round has ended: what a body does now is not part of it
            return False
        inner = self._cursor.inside(branch, failed=entry.error is not None)
        if inner and not self._compensations.can_fold(inner):
            return False
        self._cursor.fold(branch, inner, entry, into)
        return True

    def _leave(self, branch: Branch, into: Branch) -> None:
        """Make the entries of ``branch``, which does not fold, entries of the branch ``into``."""
        if not self._scheduler.closing:
            self._cursor.merge(branch, into)


def _read_back(path: str, asked: str, value: T, codec: Codec) -> tuple[Entry | None, T]:
    """Return the entry of ``value`` and the value read back; no entry if the two differ."""
    try:
        encoded = codec.encode(path, value)
        again: T = codec.decode(path, encoded)
        alike = type(again) is type(value) and same(value, again)
    except SerializationError:
        return None, value
    return (Entry("branch", asked, encoded) if alike else None), again

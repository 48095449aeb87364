"""The markers of one run: which way a call takes where its code was changed.

A call that comes to a marker for the first time takes the new way. A call that passed the place before the
marker was there takes the old way. Nothing is recorded of a place that has no marker, so the rest of the
record tells: a run that has not passed all of it yet is at a place where the call has been before.

    something recorded comes after the place, in the same branch or task       old way
    all that is recorded has been passed                                       new way
    other branches or tasks are on their way through the record                wait for them
    they cannot go on, or take longer than the round's patience                old way

The last two make the answer the same in whatever order branches and tasks run. The answer is recorded before
the body sees it, for the whole call: nothing folds it, and a body need not ask for it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from anabranch._engine.cursor import ReplayCursor
from anabranch._engine.journal import MARKER
from anabranch._engine.needed import Barrier
from anabranch._engine.scheduler import Scheduler
from anabranch._engine.scope import Scope


class Markers:
    """Decides the markers of one run.

    Args:
        cursor: what is recorded, and how much of it the run has passed.
        scheduler: whether the run has rounds, which end when nothing goes on.
        asked: the futures of its open asks.
    """

    def __init__(
        self,
        cursor: ReplayCursor,
        scheduler: Scheduler,
        asked: Callable[[], Iterator[asyncio.Future[None]]],
    ) -> None:
        self._cursor = cursor
        self._scheduler = scheduler
        self._barrier = Barrier(scheduler.strands, asked)
        self._waiting: list[asyncio.Future[None]] = []

    async def is_new_way(self, scope: Scope, name: str) -> bool:
        """Return whether the call takes the new way at the marker ``name``.

        Raises:
            NonDeterminismError: the replay has failed before.
        """
        cursor, scheduler, step_id = self._cursor, self._scheduler, f"{MARKER}#{name}"
        if cursor.fault is not None:
            await scheduler.raise_fault(step_id, cursor.fault)
        if cursor.recorded(step_id) is None and not scheduler.closing:
            comes_later = cursor.reached.comes_later(scope.path, cursor.journal.pending)
            if not comes_later and not cursor.has_reached_all():
                await self._wait()
            cursor.mark(step_id, not comes_later and cursor.has_reached_all())
        known = cursor.recorded(step_id)
        return known is not None and bool(known.value)

    async def _wait(self) -> None:
        """Wait until all that is recorded has been passed, or no strand can pass more of it."""
        if not self._scheduler.has_rounds:
            await self._barrier.wait()
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self._cursor.reached.on_passed = self._look
        self._scheduler.strand_parked()
        try:
            await future
        finally:
            self._scheduler.stir()

    def _look(self) -> None:
        if self._waiting and self._cursor.has_reached_all():
            self.go_on()

    def futures(self) -> Iterator[asyncio.Future[None]]:
        """Yield what the strands at markers wait for."""
        return iter(self._waiting)

    def go_on(self) -> bool:
        """Let strands that wait at a marker decide now; return whether there are any."""
        waiting, self._waiting = self._waiting, []
        self._cursor.reached.on_passed = None
        awaited = [future for future in waiting if not future.done()]  # else it was cancelled
        for future in awaited:
            future.set_result(None)
        return bool(awaited)

"""Markers decide whether a call runs the old code or the new code at a change of its code.

A call that comes to a marker for the first time runs the new code. A call that passed the place before
the marker existed runs the old code. The record holds no entry for a place without a marker, so the
other entries decide. A run that still has entries ahead is at a place that the call passed before.

    an entry comes after the place, in the same branch or task          old code
    the run has passed every entry                                      new code
    other branches or tasks are still replaying entries                 wait for them
    these cannot continue, or take longer than the round's patience     old code

The last two rows make the decision independent of the order in which branches and tasks run. The
decision is recorded before the body sees it, for the whole call.
"""

from __future__ import annotations

import asyncio

from anabranch._engine.cursor import ReplayCursor
from anabranch._engine.journal import MARKER
from anabranch._engine.scheduler import Scheduler
from anabranch._engine.strands import Scope
from anabranch._engine.survey import Barrier


class Markers:
    """Decides the markers of one run."""

    def __init__(self, cursor: ReplayCursor, scheduler: Scheduler) -> None:
        self._cursor = cursor
        self._scheduler = scheduler
        self._barrier = Barrier(scheduler.strands, scheduler.parked)
        self._waiting: list[asyncio.Future[None]] = []

    async def is_new_way(self, scope: Scope, name: str) -> bool:
        """Return whether the call runs the new code at the marker ``name``."""
        cursor, scheduler, step_id = self._cursor, self._scheduler, f"{MARKER}#{name}"
        if cursor.fault is not None:
            # A record that does not fit the code decides nothing:
            # test_no_marker_is_decided_after_a_difference.
            await scheduler.raise_fault(step_id, cursor.fault)
        # A ``finally`` block of a round that is over would decide for the next round:
        # test_a_cleanup_after_the_round_records_no_marker.
        if cursor.recorded(step_id) is None and not scheduler.closing:
            comes_later = cursor.reached.comes_later(scope.path, cursor.journal.pending)
            if not comes_later and not cursor.has_reached_all():
                # Otherwise the answer would depend on which branch runs first:
                # test_a_new_call_takes_the_new_way_next_to_replayed_branches.
                await self._wait()
            cursor.mark(step_id, not comes_later and cursor.has_reached_all())
        known = cursor.recorded(step_id)
        return known is not None and bool(known.value)

    async def _wait(self) -> None:
        """Wait until the run has passed every entry, or no strand can pass another entry."""
        # A hot run has no end of a round that would release the strand:
        # test_a_hot_run_waits_for_the_replay_of_other_branches_but_not_for_their_work.
        if not self._scheduler.has_rounds:
            await self._barrier.wait()
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self._cursor.reached.on_passed = self._look
        # Without the report, a round in which all strands wait would never end:
        # test_a_place_counts_as_passed_after_acts_of_other_tasks.
        self._scheduler.park(future)
        try:
            await future
        finally:
            self._scheduler.parked.discard(future)
            self._scheduler.stir()

    def _look(self) -> None:
        if self._waiting and self._cursor.has_reached_all():
            self.resume()

    def resume(self) -> bool:
        """Let strands that wait at a marker decide now; return whether any strand waits."""
        waiting, self._waiting = self._waiting, []
        self._cursor.reached.on_passed = None
        # To complete a cancelled future raises ``InvalidStateError``:
        # test_a_strand_cancelled_at_a_marker_delays_no_other_strand.
        awaited = [future for future in waiting if not future.done()]  # else it was cancelled
        for future in awaited:
            future.set_result(None)
        return bool(awaited)

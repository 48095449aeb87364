"""Quiescence: finds the end of a round, when the call's result waits for open asks.

This module only observes; the call cancels the strands and collects the asks. While an ask is open,
the round ends

- immediately, if every strand is blocked; but if the call only sleeps, and for no longer than
  ``PATIENCE``, the round waits for the end of the sleep;
- after ``SETTLE`` or ``UNSEEN`` seconds without an event, if all needed strands that are not blocked
  wait at locks or futures;
- ``GRACE`` seconds after the last ask, if only strands in the background run: they may be about to
  ask, and questions travel together;
- ``PATIENCE`` seconds after the first ask, whatever is busy.

The last two cases wait for a running step, and no other step starts meanwhile. A round that ends
too early costs another round, which repeats unrecorded work. A round that never ends would hang the call.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Set as AbstractSet
from typing import NamedTuple, Protocol

from anabranch._engine import waits
from anabranch._engine.strands import Strand
from anabranch._engine.survey import ACTIVE, Seen, StrandState, StrandSurvey
from anabranch._engine.waits import AnyFuture, AnyTask

SETTLE = 0.05
"""Seconds for strands at a lock or a queue: one strand wakes another within a few passes of the loop."""

UNSEEN = 1.0
"""Seconds for a bare future, which the driver of a device or a service usually completes."""

GRACE = 0.1
"""Seconds in which strands in the background may still ask."""

PATIENCE = 2.0
"""Seconds that work outside of steps may hold back an open ask, unless a tool or edge says less."""

logger: logging.Logger = logging.getLogger("anabranch.engine")


def checked_patience(patience: float | None) -> float | None:
    """Return ``patience`` if it is a positive number of seconds, or ``None`` for ``PATIENCE``."""
    if patience is not None and not 0 < patience < math.inf:
        raise ValueError(f"patience must be a positive number of seconds, got {patience!r}")
    return patience


class Quiet(NamedTuple):
    """The end of a round; ``cut_off`` is the busy place in the source, if the round was cut off."""

    certain: bool
    cut_off: str | None = None


class RoundOwner(Protocol):
    """The call that a round belongs to."""

    def seconds_asleep(self) -> float | None:
        """Return the seconds until the first sleep ends; ``None`` while a question is open."""
        ...

    def answer_late(self) -> bool:
        """Give the body answers after a sleep's time; return whether a strand continues."""
        ...

    def on_quiet(self, quiet: Quiet) -> None:
        """End the round: the result waits for open asks, or has taken too long."""
        ...


class Quiescence:
    """Watches the strands of one round, of which the first returns the call's result.

    The owner reports each event to :meth:`stir`, after which the check runs at the loop's next pass.
    An unreported event leaves the round open for ever.
    """

    def __init__(
        self,
        strands: dict[AnyTask, Strand],
        parked: AbstractSet[AnyFuture],
        owner: RoundOwner,
        patience: float | None = None,
    ) -> None:
        self._strands = strands
        self._strand_survey = StrandSurvey(strands)
        self._parked = parked
        self._owner = owner
        self._patience = PATIENCE if patience is None else patience
        self._loop = asyncio.get_running_loop()
        self._check_due = False
        self._watched: set[AnyFuture] = set()
        self._settling: asyncio.TimerHandle | None = None
        self._grace: asyncio.TimerHandle | None = None
        self._graced: set[AnyFuture] = set()
        self._bound: asyncio.TimerHandle | None = None
        self._ending = False
        self._held: list[AnyFuture] = []
        self._stopped = False

    def stir(self, _: object = None) -> None:
        """Report an event: an ask was made, a strand started or ended, or a future completed."""
        if self._settling is not None:
            self._settling.cancel()
            self._settling = None
        if not self._check_due and not self._stopped:
            self._check_due = True
            self._loop.call_soon(self._check)

    async def may_begin(self) -> None:
        """Wait before a new step while the round only waits for the end of running steps."""
        # Otherwise steps that follow each other would prolong the round for ever:
        # test_after_the_bound_no_other_step_begins.
        while self._ending:
            future = self._loop.create_future()
            self._held.append(future)
            self.stir()
            await future

    def stop(self) -> None:
        if self._stopped:
            return
        self._stopped = True
        # A timer that is left would fire in a round that is over:
        # test_a_round_interrupted_while_it_settles_leaves_no_timer.
        self._stop_timers()
        for future in self._watched:
            future.remove_done_callback(self._wake)
        self._watched.clear()

    def _stop_timers(self) -> None:
        for timer in (self._settling, self._grace, self._bound):
            if timer is not None:
                timer.cancel()
        self._settling = self._grace = self._bound = None

    def _wake(self, future: AnyFuture) -> None:
        self._watched.discard(future)
        self.stir()

    def _watch(self, task: AnyTask) -> None:
        waiter = waits.waiter_of(task)
        # A step reports its own end, and may wait for a thousand things before.
        if waiter is not None and not self._strands[task].effects and waiter not in self._watched:
            self._watched.add(waiter)
            waiter.add_done_callback(self._wake)

    # -- deciding ----------------------------------------------------------------------------

    def _check(self) -> None:
        self._check_due = False
        if self._stopped:
            return
        if self._strand_survey.witness_is_ready() and not self._ending:
            self.stir()
        else:
            self._survey()

    def _survey(self, *, waited: bool = False) -> None:
        """End or prolong the round by a survey; ``waited`` if a timer of the round has ended."""
        asked = {future for future in self._parked if not future.done()}
        if not asked:
            # Otherwise steps held back by the bound would wait for ever:
            # test_steps_continue_when_the_question_is_withdrawn_meanwhile.
            self._begin_again()
            return
        seen = self._strand_survey.take(asked.union(self._held))
        if seen.state is StrandState.BLOCKED:
            # Without the bound, a clock that stands still would hold the round open:
            # test_a_round_does_not_wait_longer_for_a_stopped_clock.
            if self._ending or not self._sleeps_shortly():
                self._end(Quiet(certain=not self._held))
        # A heartbeat in the background never ends: test_a_question_is_asked_next_to_a_background_task.
        elif self._ending or (waited and seen.in_background):
            self._end_after_steps(seen)
        elif waited and seen.state not in ACTIVE:
            self._end(Quiet(certain=False))
        else:
            self._resume(seen, asked)

    def _sleeps_shortly(self) -> bool:
        """Whether the first sleep ends within the patience; if so, bound the wait for it."""
        seconds = self._owner.seconds_asleep()
        is_short = seconds is not None and 0 < seconds <= self._patience
        if is_short and self._bound is None:
            self._bound = self._loop.call_later(self._patience, self._out_of_patience)
        return is_short

    def _begin_again(self) -> None:
        """Drop all limits: no ask is open (any more), so nothing ends the round."""
        self._stop_timers()
        self._ending = False
        for future in self._held:
            if not future.done():
                future.set_result(None)
        self._held.clear()

    def _resume(self, seen: Seen, asked: set[AnyFuture]) -> None:
        """Prolong the round; set the timers and watch the futures that may end it."""
        if self._bound is None:
            self._bound = self._loop.call_later(self._patience, self._out_of_patience)
        if not seen.in_background or asked != self._graced:
            if self._grace is not None:
                self._grace.cancel()
            self._grace = None
        if seen.state is StrandState.READY:
            self.stir()
        for task in seen.strands:
            self._watch(task)
        if seen.in_background:
            self._graced = asked
            self._grace = self._grace or self._loop.call_later(GRACE, self._waited)
        elif seen.state not in ACTIVE:
            seconds = SETTLE if seen.state is StrandState.SYNCHRONISING else UNSEEN
            self._settling = self._loop.call_later(seconds, self._waited)

    def _waited(self) -> None:
        # Surveyed again: a timer of the body's own (asyncio.timeout) may have withdrawn an ask
        # and woken its strand, which no event reports.
        self._settling = self._grace = None
        self._survey(waited=True)

    def _out_of_patience(self) -> None:
        self._ending = True
        self._survey()

    def _end_after_steps(self, seen: Seen) -> None:
        self._ending = True
        # A step that is cut off would run again in the next round:
        # test_a_step_next_to_a_question_is_never_cut_off.
        if any(strand.effects or task.done() for task, strand in self._strands.items()):
            return  # the end of a step, and of a strand, is reported
        place = waits.place_of(waits.frames_of(seen.strands[0]))
        if seen.in_background:
            logger.debug("a round has ended while a task in the background was at %s", place)
        cut_off = seen.state in ACTIVE and not seen.in_background
        self._end(Quiet(certain=False, cut_off=place if cut_off else None))

    def _end(self, quiet: Quiet) -> None:
        # A late answer that is never given would be asked for again:
        # test_a_late_answer_is_seen_after_the_sleep.
        if self._owner.answer_late():
            return  # the strands that continue are reported
        self.stop()
        self._owner.on_quiet(quiet)

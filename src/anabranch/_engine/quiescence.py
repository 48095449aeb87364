"""The end of a round: every strand of a call waits for nothing but open asks.

It only observes; the call cancels and collects. ``strand_states.py`` says what state a strand is
in. A strand inside a step is busy whatever it waits for. The round is over when no strand is
ready or busy and, if any is synchronising or waiting, there has been no event for ``SETTLE`` or
``PATIENCE`` seconds. Ending a round too early costs another round, in which work that is not
recorded is done again; not ending it would hang the call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator

from anabranch._engine import waits
from anabranch._engine.canary import check_support
from anabranch._engine.strand_states import StrandState, Survey
from anabranch._engine.strands import Strand
from anabranch._engine.waits import AnyFuture, AnyTask

__all__ = ["PATIENCE", "SETTLE", "Quiescence", "check_support"]

SETTLE = 0.05
"""Seconds: strands that hand something to each other do it within a few passes of the loop."""

PATIENCE = 1.0
"""Seconds: a bare future is mostly completed by the driver of some device or service."""


class Quiescence:
    """Watches the strands of one call during one round and calls ``on_quiet`` once.

    Report every event to :meth:`stir`. The check runs at the loop's next pass, only while asks
    are open, and begins with the strand that prolonged the round last time, so that its cost does
    not grow with the number of blocked strands while another one works.

    ``on_quiet`` is called with true if all strands are certainly blocked, with false if some may
    still be woken from outside.
    """

    def __init__(
        self,
        strands: dict[AnyTask, Strand],
        parked: Callable[[], Iterable[AnyFuture]],
        on_quiet: Callable[[bool], None],
    ) -> None:
        self._strands = strands
        self._parked = parked
        self._on_quiet = on_quiet
        self._loop = asyncio.get_running_loop()
        self._check_due = False
        self._witness: AnyTask | None = None
        self._watched: set[AnyFuture] = set()
        self._settling: asyncio.TimerHandle | None = None
        self._stopped = False

    def stir(self, _: object = None) -> None:
        """Report an event: an ask parked, a strand began or ended, a future completed."""
        self._stop_settling()
        if not self._check_due and not self._stopped:
            self._check_due = True
            self._loop.call_soon(self._check)

    def stop(self) -> None:
        """Stop watching; no callback or timer remains."""
        self._stopped = True
        self._stop_settling()
        for future in self._watched:
            future.remove_done_callback(self._wake)
        self._watched.clear()

    def _stop_settling(self) -> None:
        if self._settling is not None:
            self._settling.cancel()
            self._settling = None

    def _wake(self, future: AnyFuture) -> None:
        self._watched.discard(future)
        self.stir()

    def _watch(self, task: AnyTask) -> None:
        waiter = waits.waiter_of(task)
        # A step reports its own end, and may wait for a thousand things before.
        if waiter is not None and not self._strands[task].effects and waiter not in self._watched:
            self._watched.add(waiter)
            waiter.add_done_callback(self._wake)

    def _check(self) -> None:
        self._check_due = False
        if self._stopped:
            return
        if self._witness_is_ready():
            self.stir()
        else:
            self._survey(settled=False)

    def _witness_is_ready(self) -> bool:
        strand = self._strands.get(self._witness) if self._witness is not None else None
        if strand is None or strand.effects:
            return False
        waiter = waits.waiter_of(strand.task)
        return waiter is None or waiter.done()

    def _survey(self, *, settled: bool) -> None:
        """Look at all strands and decide; ``settled`` if no event came for long enough."""
        asked = {future for future in self._parked() if not future.done()}
        if not asked:
            return
        state, found = self._liveliest(Survey(self._strands.keys(), asked))
        if state is StrandState.READY:
            self.stir()
            return
        for task in found:
            self._watch(task)
        if state is StrandState.BLOCKED or (settled and state is not StrandState.BUSY):
            self.stop()
            self._on_quiet(state is StrandState.BLOCKED)
        elif state is not StrandState.BUSY:
            seconds = SETTLE if state is StrandState.SYNCHRONISING else PATIENCE
            self._settling = self._loop.call_later(seconds, self._settled)

    def _settled(self) -> None:
        # Surveyed again: a timer of the body's own (asyncio.timeout) may have withdrawn an ask
        # and woken its strand, which no event reports.
        self._settling = None
        self._survey(settled=True)

    def _liveliest(self, survey: Survey) -> tuple[StrandState, list[AnyTask]]:
        """Return the state that decides, and the strands whose waking may change it."""
        decides = StrandState.BLOCKED
        found: list[AnyTask] = []
        for task in self._in_search_order():
            busy = self._strands[task].effects
            state = StrandState.BUSY if busy else survey.state_of(task)
            if state in {StrandState.READY, StrandState.BUSY}:  # one is enough to go on
                self._witness = task
                return state, [task]
            if state is not StrandState.BLOCKED:
                found.append(task)
                decides = max(decides, state, key=lambda known: known.value)
        return decides, found

    def _in_search_order(self) -> Iterator[AnyTask]:
        witness = self._witness
        if witness is not None and witness in self._strands:
            yield witness
        for task in self._strands:
            if task is not witness:
                yield task

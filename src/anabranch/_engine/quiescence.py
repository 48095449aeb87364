"""When a round is over: every strand of the call waits for nothing but open asks.

Owns the classification of strands and nothing else. It only looks: cancelling and collecting are
``machine.py``'s.

A strand is *ready* (it will run), *blocked* (what it waits for can only come from other strands
of this call that are blocked, or from an open ask), *busy* (something outside the call will wake
it: a socket, a timer, a thread, a step), *synchronising* (it waits at a lock, event, queue or
stream) or *waiting* (for a bare future). Who ends the last two cannot be seen: another strand,
which may be blocked, or a stranger. The round is over when no strand is ready or busy and, if any
is synchronising or waiting, nothing has stirred for ``SETTLE`` or ``PATIENCE`` seconds. Ending a
round too early costs another round, in which what is not recorded is done again; not ending it
would hang the call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from enum import Enum, auto

from anabranch._engine import waits
from anabranch._engine.strands import Strand
from anabranch._engine.waits import AnyFuture, AnyTask

__all__ = ["PATIENCE", "SETTLE", "Quiescence", "check_support"]

SETTLE = 0.05
"""Seconds: strands that hand something on to each other do it within a few passes of the loop."""

PATIENCE = 1.0
"""Seconds: a bare future is mostly completed by the driver of some device or service."""


class _State(Enum):
    READY = auto()
    BLOCKED = auto()
    SYNCHRONISING = auto()
    WAITING = auto()
    BUSY = auto()


class Quiescence:
    """Watches the strands of one call during one round and calls ``on_quiet`` once.

    Tell it of every event through :meth:`stir`. It checks at the loop's next pass, only while
    asks are open, and starts with the strand that kept the round going last time, so that the
    cost of a check does not grow with the number of blocked strands while another one works.

    ``on_quiet`` is told whether that is certain: true if all strands are blocked, false if some
    may still have been woken from outside.
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
        self._relays: dict[AnyFuture, AnyFuture] | None = None
        self._stopped = False

    def stir(self, _: object = None) -> None:
        """Something happened: an ask parked, a strand began or ended, a future completed."""
        if self._settling is not None:
            self._settling.cancel()
            self._settling = None
        if not self._check_due and not self._stopped:
            self._check_due = True
            self._loop.call_soon(self._check)

    def stop(self) -> None:
        """Watch no longer; no callback or timer remains."""
        self._stopped = True
        if self._settling is not None:
            self._settling.cancel()
            self._settling = None
        for future in self._watched:
            future.remove_done_callback(self._wake)
        self._watched.clear()

    def _wake(self, future: AnyFuture) -> None:
        self._watched.discard(future)
        self.stir()

    def _watch(self, task: AnyTask) -> None:
        waiter = waits.waiter_of(task)
        # A step tells of its end itself, and may wait for a thousand things before.
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
        """Look at all strands and decide; ``settled`` when nothing has stirred for long enough."""
        self._relays = None
        own = {future for future in self._parked() if not future.done()}
        if not own:
            return
        state, found = self._liveliest(own)
        if state is _State.READY:
            self.stir()
            return
        for task in found:
            self._watch(task)
        if state is _State.BLOCKED or (settled and state is not _State.BUSY):
            self.stop()
            self._on_quiet(state is _State.BLOCKED)
        elif state is not _State.BUSY:
            seconds = SETTLE if state is _State.SYNCHRONISING else PATIENCE
            self._settling = self._loop.call_later(seconds, self._settled)

    def _settled(self) -> None:
        # Looked at again: a timer of the body's own (asyncio.timeout) may have withdrawn an ask
        # and set its strand going, which nobody tells of.
        self._settling = None
        self._survey(settled=True)

    def _liveliest(self, own: set[AnyFuture]) -> tuple[_State, list[AnyTask]]:
        """Return the state that decides, and the strands whose waking may change it."""
        decides = _State.BLOCKED
        found: list[AnyTask] = []
        for task in self._in_search_order():
            state = self._classify(task, own)
            if state in {_State.READY, _State.BUSY}:  # one is enough to keep the round going
                self._witness = task
                return state, [task]
            if state is not _State.BLOCKED:
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

    def _classify(self, task: AnyTask, own: set[AnyFuture]) -> _State:
        waiter = waits.waiter_of(task)
        if self._strands[task].effects:
            return _State.BUSY
        if waiter is None or waiter.done():
            return _State.READY
        if isinstance(waiter, asyncio.Task) or waiter in own or waits.children_of(waiter):
            return self._future_state(waiter, own)
        frames = waits.frames_of(task)
        waited_for = waits.waited_for(frames)
        if waited_for:
            return self._awaited(waited_for, own)
        if waits.is_in_library(frames):
            return _State.SYNCHRONISING if waits.is_synchronising(frames) else _State.BUSY
        return self._future_state(waiter, own)

    def _awaited(self, futures: Iterable[AnyFuture], own: set[AnyFuture]) -> _State:
        """Classify a wait for ``futures``, all of them or any.

        When all have finished the strand is about to run; calling that blocked ends rounds early.
        """
        live = [future for future in futures if not future.done()]
        if not live:
            return _State.READY
        found = _State.BLOCKED
        for future in live:
            state = self._future_state(future, own)
            if state is _State.READY:
                return state
            if state.value > found.value:
                found = state
        return found

    def _future_state(self, future: AnyFuture, own: set[AnyFuture]) -> _State:
        if future in own or future in self._strands:
            return _State.BLOCKED
        inside = waits.children_of(future) or waits.shielded_by(future)
        if inside:
            return self._awaited(inside, own)
        if self._relays is None:
            self._relays = waits.relays([*own, *self._strands])
        source = self._relays.get(future)
        if source is not None:
            return self._awaited([source], own)
        return _State.WAITING if waits.is_bare(future) else _State.BUSY


def check_support() -> None:
    """Refuse a loop whose tasks do not show what they wait for.

    Raises:
        RuntimeError: the running task has no ``_fut_waiter``, or is no asyncio task at all.
    """
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    if not hasattr(task, "_fut_waiter"):
        raise RuntimeError(
            "A call needs asyncio's own tasks, which show what they wait for; what runs here does"
            " not. Run it in a task of asyncio or uvloop."
        )

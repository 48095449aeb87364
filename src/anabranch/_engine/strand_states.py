"""The state of a strand of a call at one moment.

A strand is *ready* (it will run), *blocked* (what it waits for can only come from an open ask or
from strands that are blocked), *busy* (something outside the call will wake it: a socket, a
timer, a thread), *synchronising* (it waits at a lock, event, queue or stream) or *waiting* (for a
bare future). Who ends the last two cannot be seen: it may be another strand, which may be
blocked, or something outside the call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from enum import Enum, auto

from anabranch._engine import frames, waits
from anabranch._engine.waits import AnyFuture, AnyTask


class StrandState(Enum):
    """What a strand waits for; of several states, the one with the largest value decides."""

    READY = auto()
    BLOCKED = auto()
    SYNCHRONISING = auto()
    WAITING = auto()
    BUSY = auto()


class Survey:
    """One look at the strands of a call; it is out of date as soon as the loop runs anything.

    Args:
        strands: the tasks of the call.
        asked: the futures of its open asks.

    Attributes:
        waited_for: the strands that the last one looked at waits for.
    """

    def __init__(self, strands: AbstractSet[AnyTask], asked: AbstractSet[AnyFuture]) -> None:
        self._strands = strands
        self._asked = asked
        self._relays: dict[AnyFuture, AnyFuture] | None = None
        self.waited_for: set[AnyTask] = set()

    def state_of(self, task: AnyTask) -> StrandState:
        """Return the state of the strand that ``task`` is."""
        self.waited_for.clear()
        waiter = waits.waiter_of(task)
        if waiter is None or waiter.done():
            return StrandState.READY
        if isinstance(waiter, asyncio.Task) or waiter in self._asked or waits.children_of(waiter):
            return self._future_state(waiter)
        stack = frames.frames_of(task)
        waited_for = frames.waited_for(stack)
        if waited_for:
            return self._awaited(waited_for)
        if frames.is_in_library(stack):
            synchronising = frames.is_synchronising(stack)
            return StrandState.SYNCHRONISING if synchronising else StrandState.BUSY
        return self._future_state(waiter)

    def _awaited(self, futures: Iterable[AnyFuture]) -> StrandState:
        """Return the state of a wait for ``futures``, all of them or any.

        When all have finished, the strand is about to run: not blocked, which would end the round
        early.
        """
        live = [future for future in futures if not future.done()]
        if not live:
            return StrandState.READY
        found = StrandState.BLOCKED
        for future in live:
            state = self._future_state(future)
            if state is StrandState.READY:
                return state
            if state.value > found.value:
                found = state
        return found

    def _future_state(self, future: AnyFuture) -> StrandState:
        if future in self._asked:
            return StrandState.BLOCKED
        if isinstance(future, asyncio.Task) and future in self._strands:
            self.waited_for.add(future)
            return StrandState.BLOCKED
        inside = waits.children_of(future) or waits.shielded_by(future)
        if inside:
            return self._awaited(inside)
        if self._relays is None:
            self._relays = waits.relays([*self._asked, *self._strands])
        source = self._relays.get(future)
        if source is not None:
            return self._awaited([source])
        return StrandState.WAITING if waits.is_bare(future) else StrandState.BUSY

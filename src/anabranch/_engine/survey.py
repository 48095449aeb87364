"""Surveys the strands that a call's result needs, and holds strands until no other is about to run.

The state of a strand follows from its wait (``waits.py``).
The result needs the first strand, and each strand that a needed one waits for. All others are in the
background.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from enum import Enum, auto
from typing import NamedTuple

from anabranch._engine import waits
from anabranch._engine.strands import Strand
from anabranch._engine.waits import AnyFuture, AnyTask

PASSES = 100
"""Maximum passes of the loop; strands that start together make their requests within a few."""


class StrandState(Enum):
    """The state of a strand, by its wait; of several states, the largest value decides."""

    READY = auto()
    """The strand is about to run."""
    BLOCKED = auto()
    """Only an open ask, or strands that are blocked, can wake the strand."""
    SYNCHRONISING = auto()
    """The strand waits at a lock, event, queue or stream, which any strand may release."""
    WAITING = auto()
    """The strand waits for a bare future, which another strand or something outside may complete."""
    BUSY = auto()
    """Something outside the call wakes the strand: a socket, a timer or a thread."""


class Survey:
    """One look at the strands of a call; the loop's next callback makes it out of date."""

    def __init__(self, strands: AbstractSet[AnyTask], asked: AbstractSet[AnyFuture]) -> None:
        self._strands = strands
        self._asked = asked
        self._relays: dict[AnyFuture, AnyFuture] | None = None
        self.waited_for: set[AnyTask] = set()

    def state_of(self, task: AnyTask) -> StrandState:
        self.waited_for.clear()
        waiter = waits.waiter_of(task)
        if waiter is None or waiter.done():
            return StrandState.READY
        if isinstance(waiter, asyncio.Task) or waiter in self._asked or waits.children_of(waiter):
            return self._future_state(waiter)
        stack = waits.frames_of(task)
        waited_for = waits.waited_for(stack)
        if waited_for:
            return self._awaited(waited_for)
        if waits.is_in_library(stack):
            synchronising = waits.is_synchronising(stack)
            return StrandState.SYNCHRONISING if synchronising else StrandState.BUSY
        return self._future_state(waiter)

    def _awaited(self, futures: Iterable[AnyFuture]) -> StrandState:
        """Return the state of a wait for all or any of ``futures``."""
        live = [future for future in futures if not future.done()]
        # Read as blocked, a strand that is about to run would be cut off:
        # test_a_wait_whose_tasks_have_ended_is_ready_and_prolongs_the_round.
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


class Barrier:
    """A barrier at which strands wait until no strand outside of an effect is about to run."""

    def __init__(self, strands: Mapping[AnyTask, Strand], parked: AbstractSet[AnyFuture]) -> None:
        self._strands = strands
        self._parked = parked
        self._waiting: list[AnyFuture] = []
        self._passes_left = 0

    async def wait(self) -> None:
        loop = asyncio.get_running_loop()
        if not self._waiting:
            self._passes_left = PASSES
            loop.call_soon(self._look, loop)
        future: asyncio.Future[None] = loop.create_future()
        self._waiting.append(future)
        await future

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._passes_left -= 1
        if self._passes_left > 0 and self._is_any_ready():
            loop.call_soon(self._look, loop)
            return
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():  # else its strand was cancelled
                future.set_result(None)

    def _is_any_ready(self) -> bool:
        survey = Survey(self._strands.keys(), self._parked)
        return any(
            survey.state_of(task) is StrandState.READY
            for task, strand in self._strands.items()
            if not strand.effects
        )


ACTIVE = {StrandState.READY, StrandState.BUSY}
"""The states of a strand that continues without the others."""


class Seen(NamedTuple):
    """The outcome of a survey: the deciding state, its strands, and whether the result needs none."""

    state: StrandState
    strands: list[AnyTask]
    in_background: bool


class StrandSurvey:
    """Surveys ``strands``, of which the first one returns the call's result.

    A survey begins with the witness, the needed strand that was running last time. So the cost does
    not grow with the number of blocked strands while another one works.
    """

    def __init__(self, strands: dict[AnyTask, Strand]) -> None:
        self._strands = strands
        self._witness: AnyTask | None = None
        self._waiter: AnyFuture | None = None

    def witness_is_ready(self) -> bool:
        """Whether the strand that was running at the last survey is about to run."""
        strand = self._strands.get(self._witness) if self._witness is not None else None
        if strand is None or strand.effects:
            return False
        waiter = waits.waiter_of(strand.task)
        return waiter is None or waiter.done()

    def take(self, asked: AbstractSet[AnyFuture]) -> Seen:
        """Survey the strands that the result waits for, then all others; return the deciding state."""
        survey = Survey(self._strands.keys(), asked)
        witness = self._witness
        # A witness that waits for another future may be blocked by now, and its feeder at work:
        # test_work_that_the_result_waits_for_is_not_cut_off_early.
        if witness in self._strands and waits.waiter_of(witness) is self._waiter:
            state = self._state_of(witness, survey)
            if state in ACTIVE:
                return Seen(state, [witness], in_background=False)
        passed: set[AnyTask] = set()
        state, found = self._walk(survey, [next(iter(self._strands))], passed)
        if state is not StrandState.BLOCKED:
            self._witness, self._waiter = found[0], waits.waiter_of(found[0])
            return Seen(state, found, in_background=False)
        self._witness = None
        state, found = self._walk(survey, self._strands, passed)
        return Seen(state, found, in_background=state is not StrandState.BLOCKED)

    def _walk(
        self, survey: Survey, start: Iterable[AnyTask], passed: set[AnyTask]
    ) -> tuple[StrandState, list[AnyTask]]:
        """Follow the waits of strands; return the state that decides, and the strands in it."""
        decides = StrandState.BLOCKED
        found: list[AnyTask] = []
        ahead = list(start)
        while ahead:
            task = ahead.pop()
            if task in passed:
                continue
            passed.add(task)
            state = self._state_of(task, survey)
            if state in ACTIVE:  # one active strand is enough to continue
                return state, [task]
            ahead.extend(survey.waited_for)
            # Otherwise the round would end while a feeder of the needed strand works:
            # test_work_that_the_result_waits_for_is_not_cut_off_early.
            if state is not StrandState.BLOCKED:  # any strand may be the one to wake it
                ahead.extend(() if found else self._strands)
                found.append(task)
                decides = max(decides, state, key=lambda known: known.value)
        return decides, found

    def _state_of(self, task: AnyTask, survey: Survey) -> StrandState:
        return StrandState.BUSY if self._strands[task].effects else survey.state_of(task)

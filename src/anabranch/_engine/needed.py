"""Surveys the strands that a call's result needs, and holds strands until no other is about to run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from anabranch._engine import waits
from anabranch._engine.strands import Strand, StrandState, Survey
from anabranch._engine.waits import AnyFuture, AnyTask

PASSES = 100
"""Maximum passes of the loop; strands that start together make their requests within a few."""


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

"""A barrier that opens once no strand of a call is about to run.

At it waits what the server itself answers under a budget: of several requests at the same time, each
is admitted before the first is answered, as where an edge hands all of them out. A strand that waits
for something, a step's I/O for instance, holds nothing up; one that never waits does so for no longer
than ``PASSES`` passes of the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from anabranch._engine.strand_states import StrandState, Survey
from anabranch._engine.strands import Strand
from anabranch._engine.waits import AnyFuture, AnyTask

PASSES = 100
"""Passes of the loop: strands that begin together come to their requests within a few."""


class Barrier:
    """Where strands of one call wait for the others.

    Args:
        strands: the tasks of the call; those inside of an effect are not waited for.
        asked: the futures of its open asks.
    """

    def __init__(
        self, strands: Mapping[AnyTask, Strand], asked: Callable[[], Iterable[AnyFuture]]
    ) -> None:
        self._strands = strands
        self._asked = asked
        self._waiting: list[AnyFuture] = []
        self._passes_left = 0

    async def wait(self) -> None:
        """Wait, inside of an effect, until no strand is about to run."""
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
        survey = Survey(self._strands.keys(), set(self._asked()))
        return any(
            survey.state_of(task) is StrandState.READY
            for task, strand in self._strands.items()
            if not strand.effects
        )

"""The advances of calls in this process: one at a time for each call, without losing a wake."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from anabranch._aio import Clock
from anabranch._durable import Advance, Wake
from anabranch._telemetry import observe_wake
from anabranch.errors import StoreError

logger: logging.Logger = logging.getLogger("anabranch.engines")

FIRST_RETRY, LONGEST_RETRY = 1.0, 60.0
"""Seconds until a failed advance is repeated; the first pause doubles up to the longest."""


def check_concurrency(concurrency: int) -> None:
    """Raise ``ValueError`` if a worker with this number could advance no call."""
    if concurrency < 1:
        raise ValueError(
            f"concurrency must be at least 1, got {concurrency}."
            " Give the number of calls that the worker advances at the same time."
        )


@dataclass(slots=True)
class _Running:
    """An advance in progress, and the wakes that came for the same call meanwhile."""

    wake: Wake
    again: dict[str, Wake] = field(default_factory=dict[str, Wake])


class Advances:
    """Advances calls, each in the task that calls :meth:`run`.

    ``interrupted`` receives the wakes of an advance that is cancelled from outside.
    """

    def __init__(
        self, clock: Clock, interrupted: Callable[[Wake], object] = lambda _wake: None
    ) -> None:
        self._clock = clock
        self._interrupted = interrupted
        self._running: dict[str, _Running] = {}
        self._failures: dict[str, int] = {}

    async def run(self, wake: Wake, advance: Advance) -> list[Wake]:
        """Advance a call; return the wakes that are due afterwards.

        If the call is being advanced already, return immediately. The other advance then returns
        this wake, unless that advance began for the same wake. The wake gets a new time, since an
        engine may count the old wake as done.
        """
        running = self._running.get(wake.call)
        if running is not None:
            if (wake.turn, wake.not_before) != (running.wake.turn, running.wake.not_before):
                running.again[wake.turn] = wake
            return []
        running = self._running[wake.call] = _Running(wake)
        try:
            later = await self._advanced(wake, advance)
        except asyncio.CancelledError:
            for each in (wake, *running.again.values()):
                self._interrupted(each)
            raise
        finally:
            del self._running[wake.call]
        now = self._clock.now()
        again = [replace(each, not_before=now) for each in running.again.values()]
        return [*later, *again]

    async def run_due(self, wake: Wake, advance: Advance) -> list[Wake]:
        """Advance a call until no wake is due for it; return the wakes for later.

        An engine on which taking a wake is expensive uses this method. Wakes that arrive meanwhile
        do not pass through the engine's queue again, and one advance serves all of them.
        """
        later: list[Wake] = []
        due: Wake | None = wake
        while due is not None:
            now_due, due = due, None
            for each in await self.run(now_due, advance):
                if each.not_before <= self._clock.now():
                    due = each
                else:
                    later.append(each)
        return later

    async def _advanced(self, wake: Wake, advance: Advance) -> list[Wake]:
        """Advance a call; if the advance fails, return a wake for the retry."""
        try:
            with observe_wake(wake.call, wake.turn, wake.tool, wake.trace):
                await advance(wake)
        except Exception as error:
            # After any error the call must continue; its store ends a call that cannot.
            failures = self._failures[wake.call] = self._failures.get(wake.call, 0) + 1
            later = min(FIRST_RETRY * 2 ** (failures - 1), LONGEST_RETRY)
            again = f"call {wake.call!r} was not advanced; it is tried again in {later:g} s"
            if isinstance(error, StoreError):  # the message says it all
                logger.warning("%s: %s", again, error)
            else:
                logger.exception("%s", again)
            return [replace(wake, not_before=self._clock.now() + later)]
        self._failures.pop(wake.call, None)
        return []

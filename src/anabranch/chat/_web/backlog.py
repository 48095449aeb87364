"""The backlog: the runs that wait for a worker; and the limit beyond which no further one begins.

It is read from the store, which has each run of all processes once. An engine would count wakes: a run
has several when it has waited for long, and calls that sleep have some, too.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from anabranch._durable.run_events import RunEvents
from anabranch.chat._web.open_run import OpenRun

FRESH = 1.0
"""Seconds for which what was read counts."""

COME_BACK = 5
"""Seconds after which one who is refused is asked to come back."""

RUNNING = 10_000
"""The most runs in progress beside which all that wait are found."""


class Backlog:
    """How many runs wait, as far as it matters to a limit.

    Many processes may each let some pass at the same moment: the limit is exceeded by so many at most.

    Args:
        events: stores who works on which run.
        most: how many may wait; ``None`` for any number.
        here: counts the runs that this process has begun for itself, and not taken yet.
        now: seconds that never go back.

    Raises:
        ValueError: ``most`` is not positive.
    """

    def __init__(
        self,
        events: RunEvents,
        most: int | None,
        here: Callable[[], int],
        now: Callable[[], float],
    ) -> None:
        if most is not None and most < 1:
            raise ValueError(f"max_backlog must be at least 1, or None, not {most}.")
        self._events = events
        self._most = most
        self._here = here
        self._now = now
        self._lock = asyncio.Lock()
        self._read_at = -math.inf
        self._waiting = self._begun = 0

    async def add(self) -> int:
        """Count a run that is to begin; return after how many seconds to come back, 0 if it may.

        The store is read once a second; before a run is refused that would fit by what was read, too,
        since some that have begun meanwhile may have been taken.

        Raises:
            StoreError: the store failed.
        """
        if self._most is None:
            return 0
        async with self._lock:
            is_old = self._now() - self._read_at >= FRESH
            if is_old or self._waiting < self._most <= self._waiting + self._begun:
                await self._read(self._most)
            if self._waiting + self._begun >= self._most:
                return COME_BACK
            self._begun += 1
            return 0

    async def _read(self, most: int) -> None:
        waiting, _ = await self.counted(most + RUNNING)
        self._waiting, self._begun = waiting, 0
        self._read_at = self._now()

    async def counted(self, most: int) -> tuple[int, int]:
        """Return how many runs wait, and how many are in progress; ``most`` are looked at.

        One that waits for other code, or for a time, is neither: no worker comes to it now.

        Raises:
            StoreError: the store failed.
        """
        found = await self._events.overdue(math.inf, most)
        runs = [OpenRun.of(owner) for _, owner, _ in found]
        taken = sum(bool(run.worker) for run in runs)
        waiting = sum(not (run.worker or run.version or run.until) for run in runs)
        here = self._here()  # the store has them as this process's
        return waiting + here, taken - here

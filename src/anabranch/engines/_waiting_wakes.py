"""The waiting wakes of this process, in the order in which their times come."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable
from itertools import count

from anabranch._durable import Wake

OUTDATED_AT_MOST = 100
"""Maximum entries without a wake that may stay in the heap, besides as many as there are wakes."""


class WaitingWakes:
    """Wakes that no worker has taken. A call has each turn once, at its earliest time."""

    def __init__(self) -> None:
        self._wakes: dict[tuple[str, str], Wake] = {}
        self._due: OrderedDict[tuple[str, str], Wake] = OrderedDict()
        self._sleeping: list[tuple[float, int, Wake]] = []
        self._order = count()

    def __len__(self) -> int:
        return len(self._wakes)

    def add(self, wake: Wake) -> None:
        """Add a wake; a waiting wake of the same name stays, with the earlier of both times."""
        known = self._wakes.get((wake.call, wake.turn))
        if known is not None and known.not_before <= wake.not_before:
            return
        self._wakes[wake.call, wake.turn] = wake
        heapq.heappush(self._sleeping, (wake.not_before, next(self._order), wake))
        if len(self._sleeping) > 2 * len(self._wakes) + OUTDATED_AT_MOST:
            self._sleeping = [entry for entry in self._sleeping if self._waits(entry[-1])]
            heapq.heapify(self._sleeping)

    def take(self, now: float, allowed: Callable[[Wake], bool]) -> Wake | None:
        """Remove and return the next wake that may run at the time ``now``, or ``None``."""
        while self._sleeping and self._sleeping[0][0] <= now:
            *_, wake = heapq.heappop(self._sleeping)
            if self._waits(wake):
                self._due[wake.call, wake.turn] = wake
        name = next((name for name, wake in self._due.items() if allowed(wake)), None)
        if name is None:
            return None
        del self._wakes[name]
        return self._due.pop(name)

    def next_time(self) -> float | None:
        """Return the time of the next future wake, or ``None`` without one."""
        while self._sleeping and not self._waits(self._sleeping[0][-1]):
            heapq.heappop(self._sleeping)
        return self._sleeping[0][0] if self._sleeping else None

    def _waits(self, wake: Wake) -> bool:
        """Return whether a wake still waits, and was not replaced by an earlier one."""
        return self._wakes.get((wake.call, wake.turn)) is wake

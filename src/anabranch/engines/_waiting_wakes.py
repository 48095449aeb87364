"""The waiting wakes of this process, and their order.

Of the wakes whose time has come, the next is one whose share (a caller's part of the workers) has
the fewest running; among equals, the first to arrive.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from typing import TypeAlias

from anabranch._durable import Wake

_Lane: TypeAlias = tuple[str, str, str]
"""The share, tool and version of wakes that are allowed to run together or not at all."""

OUTDATED_AT_MOST = 100
"""Maximum entries without a wake that may stay in the heaps."""


class WaitingWakes:
    """Wakes that no worker has taken.

    Taking one looks at the first wake of each lane, not at all wakes, so the cost does not grow
    with their number.
    """

    def __init__(self) -> None:
        self._wakes: dict[str, dict[str, Wake]] = {}
        self._count = 0
        self._sleeping: list[tuple[float, int, Wake]] = []
        self._lanes: dict[_Lane, list[tuple[int, Wake]]] = {}
        self._order = count()
        self._outdated = 0

    def __len__(self) -> int:
        return self._count

    def add(self, wake: Wake) -> None:
        """Add a wake; a waiting wake of the same name stays, with the earlier of both times."""
        of_call = self._wakes.setdefault(wake.call, {})
        known = of_call.get(wake.turn)
        if known is not None and known.not_before <= wake.not_before:
            return
        self._count += known is None
        of_call[wake.turn] = wake
        heapq.heappush(self._sleeping, (wake.not_before, next(self._order), wake))
        self._outdate(known is not None)

    def take(
        self, now: float, allowed: Callable[[Wake], bool], running: Counter[str]
    ) -> Wake | None:
        """Remove and return the next wake that may run, or ``None``.

        Args:
            now: the time.
            allowed: whether a wake may run; the same for all wakes of one tool, version and share.
            running: the number of running wakes, by share.
        """
        self._rouse(now)
        first = min(
            (
                (running[wake.share], order, lane)
                for lane, (order, wake) in self._heads()
                if allowed(wake)
            ),
            default=None,
        )
        if first is None:
            return None
        *_, wake = heapq.heappop(self._lanes[first[-1]])
        self._forget(wake)
        return wake

    def next_time(self) -> float | None:
        """Return the time of the next future wake, or ``None`` without one."""
        while self._sleeping and not self._waits(self._sleeping[0][-1]):
            heapq.heappop(self._sleeping)
        return self._sleeping[0][0] if self._sleeping else None

    def _rouse(self, now: float) -> None:
        """Move wakes whose time has come into their lanes."""
        while self._sleeping and self._sleeping[0][0] <= now:
            _, order, wake = heapq.heappop(self._sleeping)
            if self._waits(wake):
                lane = (wake.share, wake.tool, wake.version)
                heapq.heappush(self._lanes.setdefault(lane, []), (order, wake))

    def _heads(self) -> Iterator[tuple[_Lane, tuple[int, Wake]]]:
        """Yield the first wake of each lane that is not empty."""
        for lane, wakes in list(self._lanes.items()):
            while wakes and not self._waits(wakes[0][-1]):
                heapq.heappop(wakes)
            if wakes:
                yield lane, wakes[0]
            else:
                del self._lanes[lane]

    def _outdate(self, entries: int) -> None:
        """Count heap entries that lost their wake, and remove them once they are the majority."""
        self._outdated += entries
        if self._outdated <= self._count + OUTDATED_AT_MOST:
            return
        self._outdated = 0
        self._sleeping = [entry for entry in self._sleeping if self._waits(entry[-1])]
        heapq.heapify(self._sleeping)
        for lane, wakes in self._lanes.items():
            self._lanes[lane] = [entry for entry in wakes if self._waits(entry[-1])]
            heapq.heapify(self._lanes[lane])

    def _forget(self, wake: Wake) -> None:
        of_call = self._wakes[wake.call]
        del of_call[wake.turn]
        if not of_call:
            del self._wakes[wake.call]
        self._count -= 1

    def _waits(self, wake: Wake) -> bool:
        """Return whether a wake still waits, and was not replaced by an earlier one."""
        return self._wakes.get(wake.call, {}).get(wake.turn) is wake

"""The engine in this process: tasks of its event loop, without any installation.

The engine ends with its process: after a restart, its callers look into the store for open work.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import defaultdict
from collections.abc import Mapping
from itertools import count
from typing import NoReturn

from anabranch._aio import Clock, SystemClock, cancel_and_wait
from anabranch._durable import Advance, Backlog, Wake
from anabranch.engines._advances import Advances, check_concurrency
from anabranch.errors import StoreError


class InProcessEngine:
    """An engine whose workers are in this process; its ``clock`` is by default the system's."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._queues: defaultdict[tuple[str, str], list[tuple[float, int, Wake]]] = defaultdict(
            list
        )
        self._order = count()
        self._advances = Advances(self._clock, self._add)
        self._running: dict[asyncio.Task[None], Wake] = {}
        self._listeners: set[asyncio.Event] = set()
        self._is_closed = False

    async def wake(self, wake: Wake) -> None:
        self._check_open()
        self._add(wake)

    async def work(self, tools: Mapping[str, str], advance: Advance, concurrency: int) -> NoReturn:
        self._check_open()
        check_concurrency(concurrency)
        mine: set[asyncio.Task[None]] = set()
        changed = asyncio.Event()
        self._listeners.add(changed)
        try:
            while True:
                changed.clear()
                mine &= self._running.keys()
                while len(mine) < concurrency and (wake := self._next(tools)):
                    mine.add(self._start(wake, advance))
                await self._until_next(tools, changed, is_full=len(mine) >= concurrency)
        finally:
            self._listeners.discard(changed)
            await cancel_and_wait(list(mine))
            self._notify()

    async def backlog(self) -> Backlog:
        self._check_open()
        return Backlog(sum(map(len, self._queues.values())), len(self._running))

    async def close(self) -> None:
        """Close the engine, which then refuses every further operation."""
        self._is_closed = True

    # -- a worker ----------------------------------------------------------------------------

    def _first(self, tools: Mapping[str, str]) -> list[tuple[float, int, Wake]] | None:
        """Return the queue with the earliest wake that a worker with ``tools`` may take."""
        names = {(tool, version) for tool, own in tools.items() for version in ("", own)}
        queues = [self._queues[name] for name in names & self._queues.keys()]
        return min(filter(None, queues), default=None)

    def _next(self, tools: Mapping[str, str]) -> Wake | None:
        first = self._first(tools)
        is_due = first is not None and first[0][0] <= self._clock.now()
        return heapq.heappop(first)[-1] if first and is_due else None

    def _start(self, wake: Wake, advance: Advance) -> asyncio.Task[None]:
        task = asyncio.ensure_future(self._run(wake, advance))
        self._running[task] = wake
        task.add_done_callback(self._ended)
        return task

    async def _run(self, wake: Wake, advance: Advance) -> None:
        for following in await self._advances.run(wake, advance):
            self._add(following)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._running[task]
        self._notify()

    async def _until_next(
        self, tools: Mapping[str, str], changed: asyncio.Event, *, is_full: bool
    ) -> None:
        """Wait for a change, or for the time of the next wake."""
        first = None if is_full else self._first(tools)
        timer = None if first is None else self._clock.call_at(first[0][0], changed.set)
        try:
            await changed.wait()
        finally:
            if timer is not None:
                timer.cancel()

    def _add(self, wake: Wake) -> None:
        # A wake that is due already comes after those that were due before.
        due = max(wake.not_before, self._clock.now())
        heapq.heappush(self._queues[wake.tool, wake.version], (due, next(self._order), wake))
        self._notify()

    def _notify(self) -> None:
        for listener in self._listeners:
            listener.set()

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreError("The engine is closed.")

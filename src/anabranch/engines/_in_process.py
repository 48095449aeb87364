"""The engine in this process: tasks of its event loop, without any installation.

The engine ends with its process. After a restart, the engine's callers look into the store for open
work, as with every engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NoReturn

from anabranch._aio import Clock, SystemClock, cancel_and_wait
from anabranch._durable import Advance, Backlog, Wake
from anabranch.engines._advances import Advances
from anabranch.engines._waiting_wakes import WaitingWakes
from anabranch.errors import StoreError


class InProcessEngine:
    """An engine whose workers are in this process.

    Args:
        clock: the time; by default, the system's.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._waiting = WaitingWakes()
        self._advances = Advances(self._clock, self._waiting.add)
        self._running: dict[asyncio.Task[None], Wake] = {}
        self._listeners: set[asyncio.Event] = set()
        self._is_closed = False

    async def wake(self, wake: Wake) -> None:
        """See :meth:`Engine.wake`."""
        self._check_open()
        self._add(wake)

    async def work(self, tools: Mapping[str, str], advance: Advance, concurrency: int) -> NoReturn:
        """See :meth:`Engine.work`."""
        self._check_open()
        mine: set[asyncio.Task[None]] = set()
        changed = asyncio.Event()
        self._listeners.add(changed)
        try:
            while True:
                changed.clear()
                mine &= self._running.keys()
                while len(mine) < concurrency and (wake := self._next(tools)):
                    mine.add(self._start(wake, advance))
                await self._until_next(changed, is_full=len(mine) >= concurrency)
        finally:
            self._listeners.discard(changed)
            await cancel_and_wait(list(mine))
            self._notify()

    async def backlog(self) -> Backlog:
        """See :meth:`Engine.backlog`."""
        self._check_open()
        return Backlog(len(self._waiting), len(self._running))

    async def close(self) -> None:
        """Close the engine, which then refuses every further operation."""
        self._is_closed = True

    # -- a worker ----------------------------------------------------------------------------

    def _next(self, tools: Mapping[str, str]) -> Wake | None:
        """Take the next wake that this worker may advance."""

        def allowed(wake: Wake) -> bool:
            return wake.tool in tools and wake.version in {"", tools[wake.tool]}

        return self._waiting.take(self._clock.now(), allowed)

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

    async def _until_next(self, changed: asyncio.Event, *, is_full: bool) -> None:
        """Wait for a change, or for the time of the next wake."""
        due = None if is_full else self._waiting.next_time()
        timer = None if due is None else self._clock.call_at(due, changed.set)
        try:
            await changed.wait()
        finally:
            if timer is not None:
                timer.cancel()

    def _add(self, wake: Wake) -> None:
        self._waiting.add(wake)
        self._notify()

    def _notify(self) -> None:
        for listener in self._listeners:
            listener.set()

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreError("The engine is closed.")

"""The engine in this process, and the advances of calls on every engine.

The engine runs tasks of its event loop, and needs no installation. The engine ends with its process:
after a restart, its callers look into the store for open work. :class:`Advances` runs one advance of a
call at a time, and loses no wake.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import NoReturn

from anabranch._aio import Clock, SystemClock, cancel_and_wait
from anabranch._durable import Advance, Backlog, Wake
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

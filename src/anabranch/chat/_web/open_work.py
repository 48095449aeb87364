"""The open work of all conversations, as it is in the store: runs that wait for a worker, run, or were cut off.

What an engine knows of it is speed only. So these look into the store, and change what is there; the
processes that look for runs without a worker find it within seconds.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from anabranch._aio import Clock
from anabranch._durable.run_events import RunEvents
from anabranch.chat._web.live_turn import stop_run
from anabranch.chat._web.log_writer import LogWriter
from anabranch.chat._web.open_run import OpenRun
from anabranch.chat._web.thread_lease import ThreadLease
from anabranch.chat._web.thread_log import ThreadLog

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


WorkState: TypeAlias = Literal["waiting", "asleep", "running", "cut off"]

ALL = 100_000
"""More than is open at the same time."""


@dataclass(frozen=True, slots=True)
class OpenWork:
    """A run that has not ended.

    Attributes:
        thread: its conversation.
        run: the run.
        state: ``waiting`` for a worker, ``asleep``, ``running``, or ``cut off`` when its process
            has died.
        attempt: how many processes have left it, or died over it.
        events: the number of the last event of its conversation.
        version: the version of the tools' code that it waits for; empty if any will do.
        until: when it goes on if it is asleep, else 0.
    """

    thread: str
    run: str
    state: WorkState
    attempt: int
    events: int
    version: str = ""
    until: float = 0.0


async def open_work(events: RunEvents, now: float, limit: int) -> list[OpenWork]:
    """Return the open work, at most so much; what waits longest comes first.

    Raises:
        StoreError: the store failed.
    """
    leases = await events.overdue(math.inf, ALL)
    runs = [(name, OpenRun.of(owner)) for name, owner, _ in leases]
    found: list[OpenWork] = []
    for name, run in [each for each in runs if not each[1].is_alarm][:limit]:
        state: WorkState = "waiting"
        if run.worker:
            state = "running" if await events.holder(name, now) else "cut off"
        elif run.until > now:
            state = "asleep"
        last = await events.last(name)
        found.append(OpenWork(name, run.run_id, state, run.attempt, last, run.version, run.until))
    return found


async def retry(events: RunEvents, thread: str, now: float) -> bool:
    """Have any worker called for a run that waits, or was cut off.

    Returns:
        false if it is in progress, or waits for nothing but a time, which :func:`asleep_until` says.

    Raises:
        StoreError: the store failed.
    """
    owner = await events.holder(thread, 0.0)
    if owner is None:
        return False
    run = OpenRun.of(owner)
    at = now if run.worker else math.inf
    waits = replace(run.next, version="")
    if waits.name == owner and await asleep_until(events, thread, now):
        return False
    return await events.take_over(thread, owner, waits.name, at, now)


async def asleep_until(events: RunEvents, thread: str, now: float) -> float:
    """Return the time for which the run of a conversation sleeps, 0 if it does not.

    Raises:
        StoreError: the store failed.
    """
    run = OpenRun.of(await events.holder(thread, 0.0) or "")
    return 0.0 if run.until <= now or run.worker or run.is_alarm else run.until


async def cancel(events: RunEvents, thread: str, clock: Clock) -> bool:
    """Stop the run of a conversation, with all its branches; false if there is none.

    Raises:
        StoreError: the store failed.
    """
    log = ThreadLog(LogWriter(events, clock), thread)
    right = ThreadLease(events, log, thread, clock)
    run = await right.open_run()
    if run is not None and not run.until:
        await retry(events, thread, clock.now())  # what was cut off waits from now on
    return await stop_run(log, right, _is_looked_for)


async def _is_looked_for(run: OpenRun) -> None:
    """Call no worker: there is no engine here."""
    del run

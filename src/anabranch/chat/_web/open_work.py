"""Lists, retries and cancels the unfinished runs of all conversations in a store.

An engine's own list of work is only a shortcut, so these functions read and change the store. The
processes that look for runs without a worker find each change within seconds.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from anabranch._aio import Clock, run_shielded
from anabranch._durable import RunEvents, TurnRecord, TurnState
from anabranch.chat._web.live_turn import LiveTurn
from anabranch.chat._web.log_writer import LogWriter
from anabranch.chat._web.thread_lease import ThreadLease
from anabranch.chat._web.thread_log import ThreadLog

FRESH = 1.0
"""Seconds for which a count stays valid."""

COME_BACK = 5
"""Seconds until a refused caller may try again."""

RUNNING = 10_000
"""The most runs in progress among which the backlog finds all waiting runs."""


class Backlog:
    """Counts the runs that wait for a worker, and refuses runs over a limit.

    Processes may accept runs at the same moment: the runs then exceed the limit by a few. ``here``
    counts the runs that this process has started, and not taken yet.
    """

    def __init__(
        self, events: RunEvents, most: int | None, here: Callable[[], int], now: Callable[[], float]
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
        """Count a new run; return 0 if it may start, otherwise the seconds until a retry.

        Before a refusal, the backlog reads the store again: workers may have taken runs since.
        """
        if self._most is None:
            return 0
        async with self._lock:
            is_old = self._now() - self._read_at >= FRESH
            if is_old or self._waiting < self._most <= self._waiting + self._begun:
                self._waiting, _ = await self.counted(self._most + RUNNING)
                self._begun, self._read_at = 0, self._now()
            if self._waiting + self._begun >= self._most:
                return COME_BACK
            self._begun += 1
            return 0

    async def counted(self, most: int) -> tuple[int, int]:
        """Return how many runs wait and how many are in progress, among ``most`` runs.

        A run that waits for other code or for a time is neither.
        """
        runs = [turn for _, turn in await self._events.overdue(math.inf, most)]
        taken = sum(run.state is TurnState.RUNNING for run in runs)
        waiting = sum(run.state is TurnState.READY and not run.version for run in runs)
        here = self._here()  # the store lists them as this process's
        return waiting + here, taken - here


WorkState: TypeAlias = Literal["waiting", "asleep", "running", "cut off"]


@dataclass(frozen=True, slots=True)
class OpenWork:
    """A run that has not finished.

    ``attempt`` counts the workers that left the run, or died. ``events`` is the number of the
    conversation's last event. ``version`` is empty for any code, and ``until`` is 0 for a run that
    does not sleep.
    """

    thread: str
    run: str
    state: WorkState
    attempt: int
    events: int
    version: str = ""
    until: float = 0.0


async def open_work(events: RunEvents, now: float, limit: int) -> list[OpenWork]:
    """Return unfinished runs; the run that has waited longest comes first."""
    turns = await events.overdue(math.inf, limit)
    found: list[OpenWork] = []
    for name, turn in turns[:limit]:
        last, until = await events.last(name), turn.wakes_at if _sleeps(turn, now) else 0.0
        state = _state_of(turn, now)
        found.append(OpenWork(name, turn.id, state, turn.attempt, last, turn.version, until))
    return found


def _state_of(turn: TurnRecord, now: float) -> WorkState:
    if turn.state is TurnState.RUNNING:
        return "running" if turn.due > now else "cut off"
    return "asleep" if _sleeps(turn, now) else "waiting"


def _sleeps(turn: TurnRecord, now: float) -> bool:
    return turn.state is TurnState.WAITING and turn.wakes_at > now


async def retry(events: RunEvents, thread: str, now: float) -> bool:
    """Let any worker take a run that waits or was cut off; return whether one may.

    The result is false while the run is in progress, or waits for the time of :func:`asleep_until`.
    """
    turn = await events.turn(thread)
    if turn is None or _sleeps(turn, now):
        return False
    called = replace(turn.called(now), version="")
    at = now if turn.state is TurnState.RUNNING else math.inf
    return await events.move(thread, turn, called, now=at)


async def asleep_until(events: RunEvents, thread: str, now: float) -> float:
    turn = await events.turn(thread)
    return turn.wakes_at if turn is not None and _sleeps(turn, now) else 0.0


async def cancel(events: RunEvents, thread: str, clock: Clock) -> bool:
    log = ThreadLog(LogWriter(events, clock), thread)
    right = ThreadLease(events, log, thread, clock)
    run = await right.open_run()
    if run is not None and run.state is not TurnState.WAITING:
        await retry(events, thread, clock.now())  # a run that was cut off waits from now on
    return await stop_run(log, right, _is_looked_for)


async def stop_run(
    log: ThreadLog,
    right: ThreadLease,
    call: Callable[[TurnRecord], Awaitable[object]],
    store_end: Callable[[LiveTurn], Awaitable[object]] | None = None,
) -> bool:
    """Stop the unfinished run and wait for its end; return whether there was one.

    ``call`` calls a worker for a run that waits for a time. ``store_end`` ends a run of no worker.
    """
    if await right.open_run() is None:
        return False
    turn = LiveTurn(log, right)
    if await turn.take(to_end=True):  # no worker has taken it yet
        try:
            await turn.read()
            if store_end is not None:
                await store_end(turn)
            await turn.stop()
        finally:
            await run_shielded(turn.hand_over())
        await log.flush()
    else:
        await right.ask_to_stop(call)
    return True


async def _is_looked_for(run: TurnRecord) -> None:
    """Wake no worker: this process has no engine, and the workers' own search finds the run."""
    del run

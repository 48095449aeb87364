"""The open work of all conversations, as it is in the store: runs that wait for a worker, run, or were cut off.

What an engine knows of it is speed only. So these look into the store, and change what is there; the
processes that look for runs without a worker find it within seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from anabranch._durable.run_events import RunEvents
from anabranch._engine.clock import Clock
from anabranch.chat._web.branch_work import split_call
from anabranch.chat._web.live_turn import stop_run
from anabranch.chat._web.log_writer import LogWriter
from anabranch.chat._web.open_run import OpenRun
from anabranch.chat._web.thread_lease import ThreadLease
from anabranch.chat._web.thread_log import ThreadLog

__all__ = ["OpenWork", "WorkState", "asleep_until", "cancel", "open_work", "retry"]

WorkState: TypeAlias = Literal["waiting", "asleep", "running", "cut off"]


@dataclass(frozen=True, slots=True)
class OpenWork:
    """A run that has not ended.

    Attributes:
        thread: its conversation; for a branch that has a worker of its own, ``THREAD/BRANCH``.
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
    found: list[OpenWork] = []
    for thread, owner, _ in await events.overdue(math.inf, limit):
        run = OpenRun.of(owner)
        if run.is_alarm:
            continue
        state: WorkState = "asleep" if run.until > now else "waiting"
        if run.worker:
            state = "running" if await events.holder(thread, now) else "cut off"
        last = await events.last(split_call(thread)[0])
        work = OpenWork(thread, run.run_id, state, run.attempt, last, run.version, run.until)
        found.append(work)
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
    if run.until > now and waits.name == owner:
        return False
    return await events.take_over(thread, owner, waits.name, at, now)


async def asleep_until(events: RunEvents, thread: str, now: float) -> float:
    """Return the time for which the run of a conversation waits, 0 if it waits for none.

    Raises:
        StoreError: the store failed.
    """
    run = OpenRun.of(await events.holder(thread, 0.0) or "")
    return run.until if run.until > now and not run.worker and not run.is_alarm else 0.0


async def cancel(events: RunEvents, thread: str, clock: Clock) -> bool:
    """Stop the run of a conversation, or the one that a branch belongs to; false if there is none.

    Raises:
        StoreError: the store failed.
    """
    thread, _ = split_call(thread)
    log = ThreadLog(LogWriter(events, clock), thread)
    right = ThreadLease(events, log, thread, clock)
    run = await right.open_run()
    if run is not None and not run.until:
        await retry(events, thread, clock.now())  # what was cut off waits from now on
    return await stop_run(log, right, _is_looked_for)


async def _is_looked_for(run: OpenRun) -> None:
    """Call no worker: there is no engine here."""
    del run

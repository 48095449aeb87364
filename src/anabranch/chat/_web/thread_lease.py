"""The right to run in a thread: one run at a time has it, and any process can ask that run to stop.

A process that dies loses it when its lease runs out. To ask for a stop is an event of the thread,
since events reach every process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing, suppress

from anabranch._durable.lease import RenewedLease
from anabranch._durable.run_events import RunEvents
from anabranch._engine.clock import Clock, pause
from anabranch.chat._web.thread_log import RUN_ENDS, ThreadLog

__all__ = ["BusyError", "ThreadLease"]

SECONDS = 15.0
"""Until another process can go on in the thread of one that has died."""

SOON = 0.02
"""Seconds until a run that another process begins is looked for again."""

STOP = b'{"type":"CUSTOM","name":"anabranch.stop","value":null}'
"""The event that asks for a stop."""


class BusyError(Exception):
    """A run is in progress in the thread."""

    def __init__(self) -> None:
        super().__init__("A turn is running in this conversation. Wait for it, or stop it.")


class ThreadLease:
    """Who may run in one thread.

    Args:
        events: stores the lease.
        log: the thread's events.
        thread_id: the thread.
        clock: the time.
    """

    def __init__(self, events: RunEvents, log: ThreadLog, thread_id: str, clock: Clock) -> None:
        self._events = events
        self._log = log
        self._thread_id = thread_id
        self._clock = clock

    async def holder(self) -> str | None:
        """Return the run that is in progress, in any process."""
        await self._log.flush()  # the last event of a run releases it
        owner = await self._events.holder(self._thread_id, self._clock.now())
        return None if owner is None else owner.rpartition(".")[0]

    async def take(self, run_id: str, on_lost: Callable[[], object]) -> RenewedLease | None:
        """Take it for a run; ``None`` if the run has begun already, in whatever process.

        Args:
            run_id: the run.
            on_lost: called if another process takes it over, because this one was suspended.

        Raises:
            BusyError: another run is in progress.
            StoreError: the store failed.
        """
        while True:
            await self._log.flush()
            lease = RenewedLease(
                self._events,
                self._thread_id,
                self._clock,
                worker=run_id,
                seconds=SECONDS,
                kind="thread",
                on_lost=on_lost,
            )
            is_taken = await lease.take()
            if await self._log.begun(run_id) is not None:
                async with lease:
                    return None
            if is_taken:
                return lease
            if await self.holder() not in {None, run_id}:
                raise BusyError
            await pause(self._clock, SOON)  # this same run is about to begin in another process

    async def ask_to_stop(self) -> bool:
        """Ask the run that is in progress to stop, and wait; return whether there is one."""
        if await self.holder() is None:
            return False
        asked = await self._log.put(STOP)
        with suppress(TimeoutError):
            async with asyncio.timeout(SECONDS):  # by then, a process that has died has lost it
                await self._until(asked, RUN_ENDS)
        return True

    async def asked_to_stop(self, after: int) -> None:
        """Return when the run that began after this event is asked to stop."""
        await self._until(after, STOP)

    async def _until(self, after: int, start: bytes | tuple[bytes, ...]) -> None:
        async with aclosing(self._log.follow(after)) as following:
            async for _, events in following:
                if any(event.startswith(start) for event in events):
                    return

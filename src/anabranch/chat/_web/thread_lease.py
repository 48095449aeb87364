"""The lease that allows one run at a time in a thread, from the run's start to its end.

The right is the thread's unfinished turn in the store, which outlives processes: no other run starts
before the turn ends, even if its process died. Any process can ask the run to stop by an event of
the thread, because events reach every process.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import partial

from anabranch._aio import Clock, pause
from anabranch._durable import QueuedTurn, RenewedLease, RunEvents, TurnRecord, TurnState, begun
from anabranch.chat._web.thread_log import RUN_ENDS, ThreadLog
from anabranch.errors import StoreError

logger: logging.Logger = logging.getLogger("anabranch.chat.web")

SECONDS = 15.0
"""Seconds until another process can continue the run of a dead process."""

WAITS = 2.0
"""Seconds for which a run waits for the worker that the engine calls, before any worker looks for it."""

SOON = 0.02
"""Seconds between two looks for a run that another process starts."""

AGAIN = 1.0
"""Seconds until events are read again after a failure."""

STOP = b'{"type":"CUSTOM","name":"anabranch.stop","value":null}'
"""The event that asks for a stop."""


class BusyError(Exception):
    """Another run is in progress in the thread."""

    def __init__(self) -> None:
        super().__init__("A turn is running in this conversation. Wait for it, or stop it.")


class TurnLease(RenewedLease):
    turn: TurnRecord

    def __init__(
        self, events: RunEvents, thread_id: str, clock: Clock, on_lost: Callable[[], object]
    ) -> None:
        super().__init__(events, thread_id, clock, seconds=SECONDS, kind="thread", on_lost=on_lost)
        self.begun: int | None = None
        self.last = 0


class ThreadLease:
    """Begins, queues and takes the runs of one thread, within the limit of the user ``share``."""

    def __init__(
        self,
        events: RunEvents,
        log: ThreadLog,
        thread_id: str,
        clock: Clock,
        version: str = "",
        share: str = "",
    ) -> None:
        self._events = events
        self._log = log
        self._thread_id = thread_id
        self._clock = clock
        self._version = version
        self._share = share

    def now(self) -> float:
        return self._clock.now()

    async def queue(self, run: QueuedTurn) -> bool:
        return await self._events.queue(self._thread_id, *run)

    async def queued(self) -> QueuedTurn | None:
        return await self._events.queued(self._thread_id)

    async def open_run(self) -> TurnRecord | None:
        await self._log.flush()  # the last event of a run ends its turn
        return await self._events.turn(self._thread_id)

    async def look(self) -> None:
        await self._events.look(self._thread_id, self._clock.now())

    async def looked(self, until: float) -> None:
        await self._events.looked(self._thread_id, until, now=self._clock.now())

    async def begin(
        self, run: QueuedTurn, on_lost: Callable[[], object], *, works: bool = False
    ) -> TurnLease | None:
        """Take the lease for a new run; return ``None`` if the run has been started before.

        Raises :class:`BusyError` if another run is unfinished, or the share has no room.
        """
        lease = self._lease(on_lost)
        begin = partial(self._begun, lease, run, works=works)
        may_be_full = works and self._events.per_share is not None
        while True:
            await self._log.flush()
            if await lease.take_by(begin):
                return lease
            if await self._log.begun(run.id) is not None:
                return None
            next_run = await self.open_run() or await self.queued()
            if may_be_full or (next_run is not None and next_run.id != run.id):
                raise BusyError
            if next_run is not None:  # another process is about to start this same run
                await pause(self._clock, SOON)

    async def _begun(
        self, lease: TurnLease, run: QueuedTurn, until: float, *, works: bool
    ) -> int | None:
        turn = begun(run.id, lease.owner, self._events.processes.name, until)
        number = await self._events.begin(
            self._thread_id, turn, run.event, at=self._clock.now(), share=self._share, works=works
        )
        if number is not None:
            lease.turn, lease.begun, lease.last = turn, number, number
        return number

    async def take(
        self, on_lost: Callable[[], object], *, to_end: bool = False
    ) -> TurnLease | None:
        """Take the lease on the waiting run; ``to_end`` takes a run for any version.

        ``to_end`` takes no run that waits for a time, since only a worker can end its calls.
        """
        lease = self._lease(on_lost)
        version = None if to_end else self._version
        await self._log.flush()
        is_taken = await lease.take_by(partial(self._taken, lease, version))
        return lease if is_taken else None

    async def _taken(self, lease: TurnLease, version: str | None, until: float) -> bool:
        taken = await self._events.take(
            self._thread_id, lease.owner, until, now=self._clock.now(), version=version
        )
        if taken is not None:
            lease.turn, lease.begun, lease.last = taken.turn, taken.begun, taken.last
        return taken is not None

    def _lease(self, on_lost: Callable[[], object]) -> TurnLease:
        return TurnLease(self._events, self._thread_id, self._clock, on_lost)

    async def hand_over(
        self, lease: TurnLease, *, is_called: bool, version: str = "", until: float = 0.0
    ) -> TurnRecord:
        """Leave the run to a worker, which finds it soon unless the engine wakes one."""
        await self._log.flush()
        await lease.give_up()
        turn, now = lease.turn, self._clock.now()
        if lease.is_lost:  # the next worker has to report the rest
            waits = turn.called(now)
        elif until:
            waits = turn.asleep(until)
        else:
            waits = turn.left(now + WAITS) if is_called else turn.called(now)
        waits = replace(waits, version=version)
        await self._events.move(self._thread_id, lease.turn, waits)
        return waits

    async def ask_to_stop(self, call: Callable[[TurnRecord], Awaitable[object]]) -> None:
        asked = await self._log.put(STOP)
        run = await self.open_run()
        if run is not None and run.state is TurnState.WAITING:
            due = run.called(self._clock.now())
            if await self._events.move(self._thread_id, run, due):
                await call(due)
        with suppress(TimeoutError):
            async with asyncio.timeout(SECONDS):  # by then, a dead process has lost the lease
                await self._until(asked, RUN_ENDS)

    async def asked_to_stop(self, after: int) -> None:
        await self._until(after, STOP)

    async def _until(self, after: int, start: bytes | tuple[bytes, ...]) -> bytes:
        while True:
            try:
                async with aclosing(self._log.follow(after)) as following:
                    async for first, events, _ in following:
                        for event in events:
                            if event.startswith(start):
                                return event
                        after = first + len(events) - 1
            except StoreError as error:  # the wait for a stop continues
                logger.warning(
                    "thread %r: cannot read events: %s; trying again", self._thread_id, error
                )
            await pause(self._clock, AGAIN)

"""The right to run in a thread: one run at a time has it, from its start to its end.

The right is a lease that outlives processes: no other run starts before the run ends, even if its process
died. A run that waits for a worker holds the lease under the run's own name (``open_run.py``), and a
process that works on the run holds it under the process's name. A thread without a run, but with a tool
that must continue at a time, has an alarm: a lease without a run. Upkeep finds the alarm at that time,
and the next run takes it over. Any process can ask the run to stop by an event of the thread, because
events reach every process.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import partial

from anabranch._aio import Clock, pause
from anabranch._durable.lease import RenewedLease
from anabranch._durable.run_events import NewEvents, RunEvents, TakenRun
from anabranch.chat._web.open_run import OpenRun
from anabranch.chat._web.thread_log import RUN_ENDS, ThreadLog
from anabranch.errors import StoreError

logger: logging.Logger = logging.getLogger("anabranch.chat.web")

SECONDS = 15.0
"""Seconds until another process can continue the run of a dead process."""

WAITS = 60.0
"""Seconds for which a run waits for a worker before upkeep calls another."""

SOON = 0.02
"""Seconds between two looks for a run that another process starts."""

AGAIN = 1.0
"""Seconds until events are read again after a failure."""

STOP = b'{"type":"CUSTOM","name":"anabranch.stop","value":null}'
"""The event that asks for a stop."""

ALWAYS = 0.0
"""A time at which every unreleased lease is still valid."""


class BusyError(Exception):
    """A run is in progress in the thread."""

    def __init__(self) -> None:
        super().__init__("A turn is running in this conversation. Wait for it, or stop it.")


class ThreadLease:
    """The right to run in one thread, and its holder.

    Args:
        events: stores the lease.
        log: the thread's events.
        thread_id: the thread.
        clock: the time.
        version: the version of the tools' code in this process.
    """

    def __init__(
        self, events: RunEvents, log: ThreadLog, thread_id: str, clock: Clock, version: str = ""
    ) -> None:
        self._events = events
        self._log = log
        self._thread_id = thread_id
        self._clock = clock
        self._version = version

    async def open_run(self) -> OpenRun | None:
        """Return the unfinished run, with or without a worker."""
        held = await self.held()
        return None if held is None or held.is_alarm else held

    async def held(self) -> OpenRun | None:
        """Return the holder of the lease: an unfinished run, or the alarm of an idle thread."""
        await self._log.flush()  # the last event of a run releases the lease
        owner = await self._events.holder(self._thread_id, ALWAYS)
        return None if owner is None else OpenRun.of(owner)

    async def end(self, lease: RenewedLease, events: Sequence[bytes], until: float) -> None:
        """End the run with these ``events`` and set the thread's alarm, in one step.

        If earlier events could not be stored, another process has to end the run.

        Raises:
            StoreError: if the store fails; a worker then looks at the run again.
        """
        await self._log.flush()
        if lease.is_lost:
            return
        alarm = OpenRun("", until=until).name
        last = NewEvents(self._thread_id, events, "", lease.owner, (alarm, until))
        await self._events.append_all([last], at=self._clock.now())

    async def move_alarm(self, alarm: OpenRun, until: float) -> OpenRun | None:
        """Move the alarm of an idle thread to another time, or remove it.

        Returns the moved alarm, ``None`` if there is none any more.
        """
        later = OpenRun("", until=until)
        if until == math.inf:
            await self._events.release(self._thread_id, alarm.name)
            return None
        take_over = self._events.take_over
        is_set = await take_over(self._thread_id, alarm.name, later.name, math.inf, until)
        return later if is_set else None

    async def begin(
        self, run_id: str, event: bytes, on_lost: Callable[[], object]
    ) -> tuple[RenewedLease, int, float] | None:
        """Take the right for a new run; ``None`` if any process has already started the run.

        Returns the right with the number of the run's first event, and with the time of the alarm
        that it replaces, 0 if there was none.

        Args:
            run_id: the run.
            event: its first event.
            on_lost: called if another process takes the right over from this suspended process.

        Raises:
            BusyError: if another run is unfinished.
            StoreError: if the store fails.
        """
        alarm: OpenRun | None = None
        while True:
            await self._log.flush()
            lease, now = self._lease(OpenRun(run_id), on_lost), self._clock.now()
            begin = partial(self._events.begin, self._thread_id, lease.owner, event=event, at=now)
            ask = partial(begin, key=run_id, instead=None if alarm is None else alarm.name)
            if number := await lease.take_by(ask):
                return lease, number, 0.0 if alarm is None else alarm.until
            if await self._log.begun(run_id) is not None:
                return None
            found = await self.held()
            if found is None or found.is_alarm:
                alarm = found
                continue
            if found.run_id != run_id:
                raise BusyError
            await pause(self._clock, SOON)  # another process is about to start this same run

    async def take(
        self, run: OpenRun, on_lost: Callable[[], object], *, to_end: bool = False
    ) -> tuple[RenewedLease, TakenRun] | None:
        """Take the right for a waiting run; ``None`` if the run does not wait, or is another one.

        Returns the right with the position of the run's events.

        Args:
            run: the run as found, or as expected.
            on_lost: called if another process takes the right over from this suspended process.
            to_end: take the run only to end it, whichever version it waits for. A run that waits
                for a time still needs a worker, which ends its calls.

        Raises:
            StoreError: if the store fails.
        """
        if run.worker or run.is_alarm:
            return None
        if run.until if to_end else run.version not in {"", self._version}:
            return None
        lease = self._lease(replace(run, version="", until=0.0), on_lost)
        take = partial(self._events.take, self._thread_id, run.name, lease.owner, key=run.run_id)
        await self._log.flush()
        taken = await lease.take_by(take)
        return None if taken is None else (lease, taken)

    def _lease(self, run: OpenRun, on_lost: Callable[[], object]) -> RenewedLease:
        return RenewedLease(
            self._events,
            self._thread_id,
            self._clock,
            worker=run.name,
            seconds=SECONDS,
            kind="thread",
            on_lost=on_lost,
        )

    async def hand_over(
        self,
        lease: RenewedLease,
        events: Sequence[bytes],
        *,
        is_called: bool,
        version: str = "",
        until: float = 0.0,
    ) -> OpenRun:
        """Let the run wait for a worker, which upkeep calls immediately unless one ``is_called``.

        The store adds the last ``events`` of this process in the same step. With a ``version``, the
        run waits for a worker of that version. With ``until``, it waits for that time: upkeep calls a
        worker then, or sooner. The count of dead processes starts again, because this one did its
        work. Returns the run as it waits.
        """
        await self._log.flush()
        await lease.give_up()
        run, now = OpenRun.of(lease.owner), self._clock.now()
        if lease.is_lost:  # the next worker has to report the rest
            waits, sought = run.next, now
        elif until:
            waits, sought = OpenRun(run.run_id, until=until), until
        elif is_called:
            waits, sought = replace(run, worker=""), now + WAITS
        else:
            waits, sought = run.next, now
        waits = replace(waits, version=version)
        if events:
            last = NewEvents(self._thread_id, events, "", lease.owner, (waits.name, sought))
            await self._events.append_all([last], at=now)
        else:
            await self._events.take_over(self._thread_id, lease.owner, waits.name, math.inf, sought)
        return waits

    async def rouse(self) -> OpenRun | None:
        """Let upkeep look for a worker now if the run waits for a time; return the run, or ``None``."""
        run = await self.open_run()
        if run is None or not run.until:
            return None
        take_over, now = self._events.take_over, self._clock.now()
        sought = replace(run, until=min(run.until, now))
        is_sought = await take_over(self._thread_id, run.name, sought.name, math.inf, now)
        return replace(sought, until=now) if is_sought else None

    async def ask_to_stop(self, call: Callable[[OpenRun], Awaitable[object]]) -> None:
        """Ask the unfinished run to stop, and wait; ``call`` calls a worker for it."""
        asked = await self._log.put(STOP)
        if (run := await self.rouse()) is not None:
            await call(run)
        with suppress(TimeoutError):
            async with asyncio.timeout(SECONDS):  # by then, a dead process has lost the lease
                await self._until(asked, RUN_ENDS)

    async def asked_to_stop(self, after: int) -> None:
        """Return when a client asks the run after this event to stop."""
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

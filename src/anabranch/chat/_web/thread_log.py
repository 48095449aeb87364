"""The log of a thread's events: each has an id, so that a reader can come back for what it missed.

An event is stored before anyone reads it, so its id outlives the process and means the same in every
other. It is ``NUMBER-MARK``: the mark tells the event from others that had its number before a crash
of the database. Writing never waits for the store (``log_writer.py``). The tree is the record of the
conversation; the log is for watching it happen. It is bounded, so a reader who was away for too long
is sent :data:`MISSED` and reads the tree again.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing

from pydantic import BaseModel

from anabranch._durable.lease import RenewedLease
from anabranch._durable.run_events import EventBatch, EventId, MissedEventsError
from anabranch.chat._web.log_writer import LogWriter, TextPiece
from anabranch.chat._web.thread_ids import shown_id

RUN_ENDS = (b'{"type":"RUN_FINISHED"', b'{"type":"RUN_ERROR"')
"""How the last event of a run begins."""

MISSED = b'{"type":"CUSTOM","name":"anabranch.missed","value":null}'
"""The event for a reader who has missed events that are no longer stored, or were lost."""

NOWHERE = EventId(-1, 0)
"""The id of no event."""

_ID = re.compile(r"([0-9]{1,18})-([0-9a-f]{1,16})")

MOST_WAITING = 2**20
"""The most bytes that wait for the store before a turn waits, too."""


class ThreadLog:
    """The events of one thread, in the order in which they happened.

    Args:
        writer: stores them.
        thread_id: the thread.

    Attributes:
        thread_id: the thread.
        shown_id: the id by which its principal knows it.
    """

    def __init__(self, writer: LogWriter, thread_id: str) -> None:
        self.thread_id = thread_id
        self.shown_id: str = shown_id(thread_id)
        self._writer = writer
        self._events = writer.events
        self._clock = writer.clock

    @property
    def is_written(self) -> bool:
        """Whether all that was added is stored."""
        return self._writer.is_written(self.thread_id)

    async def put(self, event: bytes) -> int:
        """Add one event when all before it are stored; return its number.

        Raises:
            StoreError: the store failed.
        """
        await self.flush()
        now = self._clock.now()
        return await self._events.append(self.thread_id, [event], at=now)

    async def begun(self, run_id: str) -> int | None:
        """Return the number before the first event of a run, ``None`` if it has not begun."""
        found = await self._events.find(self.thread_id, run_id)
        return None if found is None else found - 1

    def add(
        self,
        events: Iterable[BaseModel | TextPiece],
        *,
        lease: RenewedLease | None = None,
        release: bool = False,
        is_followed: bool = False,
    ) -> None:
        """Add events, which are stored soon, as :meth:`LogWriter.add` does."""
        self._writer.add(
            self.thread_id, events, lease=lease, release=release, is_followed=is_followed
        )

    async def room(self) -> None:
        """Wait while too much waits for the store."""
        if self._writer.size(self.thread_id) > MOST_WAITING:
            await self.flush()

    async def flush(self) -> None:
        """Wait until all that was added is stored."""
        await self._writer.flush(self.thread_id)

    async def last(self) -> int:
        """Return the number of the last event; 0 before the first."""
        await self.flush()
        return await self._events.last(self.thread_id)

    async def id_of(self, number: int | None = None) -> EventId:
        """Return the id of an event that is stored; by default, of the last one."""
        if number is None:
            await self.flush()
        return await self._events.id_of(self.thread_id, number)

    async def read(self, after: int, until: int | None = None) -> list[bytes]:
        """Return the events after a number that are there, or all to the number ``until``."""
        last, found = await self.last() if until is None else until, list[bytes]()
        if last > after:
            async with aclosing(self.follow(after)) as following:
                async for first, events, _ in following:
                    found += events
                    if first + len(events) > last:
                        break
        return found

    async def follow(self, after: int | EventId) -> AsyncGenerator[EventBatch]:
        """Yield the events after a number, or an event, in batches, for ever.

        A reader who has missed events is sent :data:`MISSED`, under the id of the last event.
        """
        while True:
            try:
                async with aclosing(self._events.follow(self.thread_id, after)) as following:
                    async for batch in following:
                        yield batch
            except MissedEventsError as error:
                after = error.last
                yield EventBatch(after.number, [MISSED], [after.mark])


def position(text: str) -> EventId:
    """Return the id that a reader gives; that of no event if it is none, such as a mere number.

    ``0`` is the beginning, as ``0-0`` is: who has read nothing has nothing to prove.
    """
    found = _ID.fullmatch("0-0" if text == "0" else text)
    return EventId(int(found[1]), int(found[2], 16)) if found else NOWHERE

"""The log of a thread's events: each has a number, so that a reader can come back for what it missed.

An event is stored before anyone reads it, so its number outlives the process and means the same in
every other. Writing never waits for the store (``log_writer.py``). The tree is the record of the
conversation; the log is for watching it happen. It is bounded, so a reader who was away for too long
is sent :data:`MISSED` and reads the tree again.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing

from pydantic import BaseModel

from anabranch._durable.lease import RenewedLease
from anabranch._durable.run_events import MissedEventsError
from anabranch.chat._web.log_writer import LogWriter, TextPiece

__all__ = ["MISSED", "RUN_ENDS", "ThreadLog", "position"]

RUN_ENDS = (b'{"type":"RUN_FINISHED"', b'{"type":"RUN_ERROR"')
"""How the last event of a run begins."""

MISSED = b'{"type":"CUSTOM","name":"anabranch.missed","value":null}'
"""The event for a reader who has missed events that are no longer stored."""

MOST_WAITING = 2**20
"""The most bytes that wait for the store before a turn waits, too."""


class ThreadLog:
    """The events of one thread, in the order in which they happened.

    Args:
        writer: stores them.
        thread_id: the thread.

    Attributes:
        thread_id: the thread.
    """

    def __init__(self, writer: LogWriter, thread_id: str) -> None:
        self.thread_id = thread_id
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

    async def read(self, after: int, until: int | None = None) -> list[bytes]:
        """Return the events after a number that are there, or all to the number ``until``."""
        last, found = await self.last() if until is None else until, list[bytes]()
        if last > after:
            async with aclosing(self.follow(after)) as following:
                async for first, events in following:
                    found += events
                    if first + len(events) > last:
                        break
        return found

    async def follow(self, after: int) -> AsyncGenerator[tuple[int, Sequence[bytes]]]:
        """Yield the events after a number, in batches with the number of the first, for ever.

        A reader who has missed events is sent :data:`MISSED`, under the number of the last event.
        """
        while True:
            try:
                async with aclosing(self._events.follow(self.thread_id, after)) as following:
                    async for batch in following:
                        yield batch
            except MissedEventsError as error:
                after = error.last
                yield after, [MISSED]


def position(text: str) -> int:
    """Return the number that a reader gives; -1, which no event has, if it is none."""
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 19 else -1  # noqa: PLR2004

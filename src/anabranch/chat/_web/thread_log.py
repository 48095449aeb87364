"""The log of a thread's events: each has a number, so that a reader can come back for what it missed.

An event is stored before anyone reads it, so its number outlives the process and means the same in
every other. Writing never waits for the store: the first event is stored at once, and what happens
meanwhile as the next batch. The more a store has to do, the larger the batches are. The tree is the record of the conversation; the log is for watching it
happen. It is bounded, so a reader who was away for too long is sent :data:`MISSED` and reads the
tree again.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing, suppress
from itertools import count

from ag_ui.core import TextMessageContentEvent
from pydantic import BaseModel
from pydantic_core import to_json

from anabranch._durable.run_events import MissedEventsError, RunEvents
from anabranch._encodable import encodable
from anabranch._engine.clock import Clock, pause
from anabranch.errors import StoreError

__all__ = ["MISSED", "RUN_ENDS", "ThreadLog", "encoded", "position"]

RUN_ENDS = (b'{"type":"RUN_FINISHED"', b'{"type":"RUN_ERROR"')
"""How the last event of a run begins."""

MISSED = b'{"type":"CUSTOM","name":"anabranch.missed","value":null}'
"""The event for a reader who has missed events that are no longer stored."""

MOST_WAITING = 2**20
"""The most bytes that wait for the store before a turn waits, too."""

REST = 3.0
"""How long nothing is stored after a batch, in units of the time that it has taken."""

RETRY, PATIENCE = 0.25, 60.0
"""Seconds until a store that has failed is tried again, and until events are dropped."""

logger: logging.Logger = logging.getLogger("anabranch.chat.web")


class ThreadLog:
    """The events of one thread, in the order in which they happened.

    Args:
        events: stores them.
        thread_id: the thread.
        clock: the time.
    """

    def __init__(self, events: RunEvents, thread_id: str, clock: Clock) -> None:
        self._events = events
        self._thread_id = thread_id
        self._clock = clock
        name = secrets.token_hex(8)
        self._keys = (f"{name}.{number}" for number in count())
        self._waiting: list[bytes] = []
        self._size = 0
        self._release: str | None = None
        self._writer: asyncio.Task[None] | None = None
        self._awaited = asyncio.Event()

    @property
    def is_written(self) -> bool:
        """Whether all that was added is stored."""
        return self._writer is None

    async def begin(self, run_id: str, event: BaseModel) -> int:
        """Add the first event of a run, under the run's name; return the number before it.

        Raises:
            StoreError: the store failed.
        """
        return await self.put(encoded(event), key=run_id) - 1

    async def put(self, event: bytes, *, key: str = "") -> int:
        """Add one event when all before it are stored; return its number.

        Raises:
            StoreError: the store failed.
        """
        await self.flush()
        now = self._clock.now()
        return await self._events.append(self._thread_id, [event], at=now, key=key)

    async def begun(self, run_id: str) -> int | None:
        """Return the number before the first event of a run, ``None`` if it has not begun."""
        found = await self._events.find(self._thread_id, run_id)
        return None if found is None else found - 1

    def add(self, events: Iterable[BaseModel], *, release: str | None = None) -> None:
        """Add events; they are stored soon, and release the lease of owner ``release``."""
        self._release = release or self._release
        new = list(map(encoded, events))
        self._waiting += new
        self._size += sum(map(len, new))
        if self._waiting and self._writer is None:
            self._writer = asyncio.create_task(self._write())

    async def room(self) -> None:
        """Wait while too much waits for the store."""
        if self._size > MOST_WAITING:
            await self.flush()

    async def flush(self) -> None:
        """Wait until all that was added is stored."""
        self._awaited.set()
        while self._writer is not None:
            await asyncio.wait({self._writer})

    async def _write(self) -> None:
        self._awaited.clear()
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                batch, self._waiting, self._size = self._waiting, [], 0
                release, self._release = self._release, None
                began = loop.time()
                await self._store(batch, release)
                with suppress(TimeoutError):
                    async with asyncio.timeout(REST * (loop.time() - began)):
                        await self._awaited.wait()
        finally:
            self._writer = None

    async def _store(self, batch: Sequence[bytes], release: str | None) -> None:
        """Store a batch, once, although the store may fail after it has done its work."""
        key, until = next(self._keys), self._clock.now() + PATIENCE
        is_repeated = False
        while True:
            try:
                if is_repeated and await self._events.find(self._thread_id, key):
                    return
                now = self._clock.now()
                await self._events.append(self._thread_id, batch, at=now, key=key, release=release)
            except StoreError as error:
                if self._clock.now() >= until:
                    logger.exception("%d events of a conversation are lost", len(batch))
                    return
                if not is_repeated:
                    logger.warning("events of a conversation cannot be stored yet: %s", error)
                is_repeated = True
                await pause(self._clock, RETRY)
            else:
                return

    async def last(self) -> int:
        """Return the number of the last event; 0 before the first."""
        await self.flush()
        return await self._events.last(self._thread_id)

    async def follow(self, after: int) -> AsyncGenerator[tuple[int, Sequence[bytes]]]:
        """Yield the events after a number, in batches with the number of the first, for ever.

        A reader who has missed events is sent :data:`MISSED`, under the number of the last event.
        """
        while True:
            try:
                async with aclosing(self._events.follow(self._thread_id, after)) as following:
                    async for batch in following:
                        yield batch
            except MissedEventsError as error:
                after = error.last
                yield after, [MISSED]


def encoded(event: BaseModel) -> bytes:
    """Return an event as it is sent."""
    shown: object = event
    if (
        type(event) is TextMessageContentEvent
    ):  # most are, and AG-UI's own way takes ten times as long
        shown = {
            "type": "TEXT_MESSAGE_CONTENT",
            "messageId": event.message_id,
            "delta": event.delta,
            **({"subagentRunId": event.subagent_run_id} if event.subagent_run_id else {}),
        }
    try:
        return to_json(shown, by_alias=True, exclude_none=True)
    except ValueError:  # texts of tools and models may have what UTF-8 has not
        return to_json(encodable(shown), by_alias=True, exclude_none=True)


def position(text: str) -> int:
    """Return the number that a reader gives; -1, which no event has, if it is none."""
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 19 else -1  # noqa: PLR2004

"""The writer of an application's logs: what is added to any of them is stored soon, with the others.

Adding never waits for the store. One batch at a time is written, with what all threads have added
until then. What a person waits for is stored at once; a text that grows is stored a few times in a
frame of the page at most, and the less often, the more the store has to do. Pieces of one text that
wait for the same batch are stored as one event.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import count

from pydantic import BaseModel

from anabranch._aio import Clock, pause
from anabranch._durable.lease import RenewedLease
from anabranch._durable.run_events import RunEvents
from anabranch.chat._web.waiting_events import TextPiece, WaitingEvents, encoded
from anabranch.errors import StoreError

__all__ = ["LogWriter", "TextPiece", "encoded"]

FOLLOWED = 0.02
"""Seconds for which an event waits that is mostly followed by others, to be stored with them."""

REST, LEAST_REST = 3.0, 0.008
"""How long nothing is stored after a batch: in units of the time that it has taken; in seconds."""

RETRY, PATIENCE = 0.25, 60.0
"""Seconds until a store that has failed is tried again, and until events are dropped."""

logger: logging.Logger = logging.getLogger("anabranch.chat.web")


class LogWriter:
    """Stores what is added, in its order within each thread.

    Args:
        events: where it is stored.
        clock: the time.
    """

    def __init__(self, events: RunEvents, clock: Clock) -> None:
        self.events: RunEvents = events
        self.clock: Clock = clock
        name = secrets.token_hex(8)
        self._keys = (f"{name}.{number}" for number in count())
        self._waiting: dict[str, list[WaitingEvents]] = {}
        self._storing: Mapping[str, WaitingEvents] = {}
        self._urgent: set[str] = set()
        self._called = asyncio.Event()
        self._stored = asyncio.Event()
        self._not_before = 0.0
        self._task: asyncio.Task[None] | None = None

    def add(
        self,
        thread_id: str,
        events: Iterable[BaseModel | TextPiece],
        *,
        lease: RenewedLease | None = None,
        release: bool = False,
        is_followed: bool = False,
    ) -> None:
        """Add events to a thread's log, as ``lease`` allows: when it has run out, they are dropped.

        With ``release``, they release it. Those that are mostly ``is_followed`` by others wait a
        little for them.
        """
        added = list(events)
        if not added:
            return
        waiting = self._place(thread_id, lease, release=release)
        urgent = False
        for event in added:
            if type(event) is TextPiece:
                waiting.add_text(event)
            else:
                waiting.add(encoded(event))
                urgent = not is_followed
        if urgent:
            self._call_for(thread_id)
        elif is_followed:
            soon = asyncio.get_running_loop().time() + FOLLOWED
            self._not_before = max(self._not_before, soon)
        if self._task is None:
            self._task = asyncio.create_task(self._write())

    def _place(self, thread_id: str, lease: RenewedLease | None, *, release: bool) -> WaitingEvents:
        """Return where events wait: with the last ones, or for a batch after theirs."""
        waiting = self._waiting.setdefault(thread_id, [])
        if not waiting or not waiting[-1].has_room(lease):
            waiting.append(WaitingEvents(lease))
        waiting[-1].releases = release
        return waiting[-1]

    def size(self, thread_id: str) -> int:
        """Return how many bytes of a thread wait to be taken into a batch."""
        return sum(each.size for each in self._waiting.get(thread_id, ()))

    def is_written(self, thread_id: str) -> bool:
        """Whether all that was added to a thread is stored."""
        return thread_id not in self._waiting and thread_id not in self._storing

    async def flush(self, thread_id: str) -> None:
        """Wait until all that was added to a thread is stored."""
        while not self.is_written(thread_id):
            if thread_id in self._waiting:  # else it is being stored
                self._call_for(thread_id)
            await self._stored.wait()

    def _call_for(self, thread_id: str) -> None:
        self._urgent.add(thread_id)
        self._called.set()

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                await self._rest(self._not_before - loop.time())
                began = loop.time()
                self._storing = self._take(all_threads=began >= self._not_before)
                await self._store(self._storing)
                ended = loop.time()
                self._not_before = ended + max(LEAST_REST, REST * (ended - began))
                self._end_batch()
        finally:
            self._task = None
            self._end_batch()

    def _take(self, *, all_threads: bool) -> Mapping[str, WaitingEvents]:
        """Return what is to be stored: of all threads, or of those for which someone waits."""
        urgent, self._urgent = self._urgent, set()
        self._called.clear()
        names = list(self._waiting) if all_threads else urgent & self._waiting.keys()
        taken = {name: self._waiting[name].pop(0) for name in names}
        for name, each in taken.items():
            each.end_text()
            if not self._waiting[name]:
                del self._waiting[name]
            elif name in urgent:  # who waits for it waits for all
                self._call_for(name)
        return taken

    async def _rest(self, seconds: float) -> None:
        if seconds > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._called.wait()

    def _end_batch(self) -> None:
        self._storing = {}
        self._stored.set()
        self._stored = asyncio.Event()

    async def _store(self, batch: Mapping[str, WaitingEvents]) -> None:
        """Store a batch, once, although the store may fail after it has done its work."""
        key, until = next(self._keys), self.clock.now() + PATIENCE
        is_tried = False
        while new := [one for name, each in batch.items() if (one := each.to_store(name, key))]:
            try:
                if is_tried:  # some may be stored, and others be refused
                    new = [each for each in new if not await self.events.find(each.run, key)]
                await self.events.append_all(new, at=self.clock.now())
            except StoreError as error:
                if self.clock.now() >= until:
                    lost = sum(len(each.events) for each in new)
                    logger.exception("%d events of %d conversations are lost", lost, len(new))
                    return
                if not is_tried:
                    logger.warning("events of conversations cannot be stored yet: %s", error)
                is_tried = True
                await pause(self.clock, RETRY)
            else:
                return

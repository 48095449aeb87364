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
from dataclasses import dataclass, field, replace
from itertools import count
from typing import NamedTuple

from pydantic import BaseModel
from pydantic_core import to_json

from anabranch._durable.lease import RenewedLease
from anabranch._durable.run_events import NewEvents, RunEvents
from anabranch._encodable import encodable
from anabranch._engine.clock import Clock, pause
from anabranch.errors import StoreError

__all__ = ["LogWriter", "TextPiece", "encoded"]

FOLLOWED = 0.02
"""Seconds for which an event waits that is mostly followed by others, to be stored with them."""

REST, LEAST_REST = 3.0, 0.008
"""How long nothing is stored after a batch: in units of the time that it has taken; in seconds."""

RETRY, PATIENCE = 0.25, 60.0
"""Seconds until a store that has failed is tried again, and until events are dropped."""

logger: logging.Logger = logging.getLogger("anabranch.chat.web")


class TextPiece(NamedTuple):
    """A ``TextMessageContentEvent``, as most events are: AG-UI's model takes ten times as long."""

    message_id: str
    delta: str
    subagent_run_id: str | None


@dataclass(slots=True)
class _Waiting:
    """What waits for the store in one thread: events, and then the pieces of one text."""

    events: list[bytes] = field(default_factory=list[bytes])
    text: TextPiece | None = None
    deltas: list[str] = field(default_factory=list[str])
    size: int = 0
    lease: RenewedLease | None = None
    is_released: bool = False

    def drop_if_stale(self) -> bool:
        """Whether the run that reports it may be another process's by now, which reports it then."""
        if self.lease is None or not self.lease.is_over:
            return False
        self.lease.lose()
        return True

    @property
    def release(self) -> str | None:
        """The owner whose lease is released with it."""
        return self.lease.owner if self.lease is not None and self.is_released else None

    def add_text(self, piece: TextPiece) -> None:
        """Add a piece of a text; it becomes part of the event of the pieces before it."""
        text = self.text
        if text is None or text[0] != piece[0] or text[2] != piece[2]:
            self.end_text()
            self.text = piece
        self.deltas.append(piece[1])
        self.size += len(piece[1])

    def add(self, event: bytes) -> None:
        """Add an event."""
        self.end_text()
        self.events.append(event)
        self.size += len(event)

    def end_text(self) -> None:
        """Make an event of the pieces."""
        if self.text is not None:
            self.events.append(encoded(self.text._replace(delta="".join(self.deltas))))
            self.text = None
            self.deltas.clear()


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
        self._waiting: dict[str, _Waiting] = {}
        self._storing: Mapping[str, _Waiting] = {}
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
        waiting = self._waiting.get(thread_id) or _Waiting()
        urgent = False
        for event in events:
            if type(event) is TextPiece:
                waiting.add_text(event)
            else:
                waiting.add(encoded(event))
                urgent = not is_followed
        if not waiting.events and waiting.text is None:
            return
        self._waiting[thread_id] = waiting
        waiting.lease = lease or waiting.lease
        waiting.is_released = release or waiting.is_released
        if urgent:
            self._call_for(thread_id)
        elif is_followed:
            soon = asyncio.get_running_loop().time() + FOLLOWED
            self._not_before = max(self._not_before, soon)
        if self._task is None:
            self._task = asyncio.create_task(self._write())

    def size(self, thread_id: str) -> int:
        """Return how many bytes of a thread wait to be taken into a batch."""
        waiting = self._waiting.get(thread_id)
        return 0 if waiting is None else waiting.size

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

    def _take(self, *, all_threads: bool) -> Mapping[str, _Waiting]:
        """Return what is to be stored: of all threads, or of those for which someone waits."""
        urgent, self._urgent = self._urgent, set()
        self._called.clear()
        names = list(self._waiting) if all_threads else urgent & self._waiting.keys()
        taken = {name: self._waiting.pop(name) for name in names}
        for each in taken.values():
            each.end_text()
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

    async def _store(self, batch: Mapping[str, _Waiting]) -> None:
        """Store a batch, once, although the store may fail after it has done its work."""
        key, until = next(self._keys), self.clock.now() + PATIENCE
        tried = dict[str, None]()  # the runs under which the batch may be stored
        while new := _to_store(batch, key):
            try:
                for run in tried:
                    if await self.events.find(run, key):
                        return
                await self.events.append_all(new, at=self.clock.now())
            except StoreError as error:
                if self.clock.now() >= until:
                    lost = sum(len(each.events) for each in new)
                    logger.exception("%d events of %d conversations are lost", lost, len(new))
                    return
                if not tried:
                    logger.warning("events of conversations cannot be stored yet: %s", error)
                tried[new[0].run] = None
                await pause(self.clock, RETRY)
            else:
                return


def _to_store(batch: Mapping[str, _Waiting], key: str) -> list[NewEvents]:
    """Return what of a batch may be stored now; all of it is stored or none, so one has the key."""
    new = [
        NewEvents(name, each.events, release=each.release)
        for name, each in batch.items()
        if not each.drop_if_stale()
    ]
    return [replace(each, key="" if place else key) for place, each in enumerate(new)]


def encoded(event: BaseModel | TextPiece) -> bytes:
    """Return an event as it is sent."""
    shown: object = event
    if isinstance(event, TextPiece):
        branch = event.subagent_run_id
        shown = {
            "type": "TEXT_MESSAGE_CONTENT",
            "messageId": event.message_id,
            "delta": event.delta,
            **({"subagentRunId": branch} if branch else {}),
        }
    try:
        return to_json(shown, by_alias=True, exclude_none=True)
    except ValueError:  # texts of tools and models may have what UTF-8 has not
        return to_json(encodable(shown), by_alias=True, exclude_none=True)

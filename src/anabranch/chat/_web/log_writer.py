"""Stores the events of all threads of an application in batches, soon after they are added.

Adding never waits for the store: the slower the store, the larger the batches. Only the beginning
of a text, the end of a turn, and events for which a caller waits are stored immediately.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

from ag_ui.core import TextMessageStartEvent
from pydantic import BaseModel
from pydantic_core import to_json

from anabranch._aio import Clock, pause
from anabranch._durable import NewEvents, RenewedLease, RunEvents
from anabranch._text import encodable
from anabranch.errors import StoreError

REST, LEAST_REST = 3.0, 0.008
"""The pause after a batch: a multiple of the batch's duration, and the least seconds.

The first event after a pause waits for the least seconds, too.
"""

RETRY, PATIENCE = 0.25, 60.0
"""Seconds until the writer retries after a failure, and until it drops events."""

logger: logging.Logger = logging.getLogger("anabranch.chat.web")


class TextPiece(NamedTuple):
    """A piece of a reply's text, in a form that is faster than an event of AG-UI."""

    message_id: str
    delta: str
    subagent_run_id: str | None


@dataclass(slots=True)
class WaitingEvents:
    """Events of one thread, reported under one ``lease``, that the store adds together.

    With ``ends``, the events end the turn, and a worker looks at the thread at ``look_at``.
    ``is_stored`` is also set after too many failures, without any event in the store.
    """

    lease: RenewedLease | None = None
    ends: bool = False
    look_at: float | None = None
    events: list[bytes] = field(default_factory=list[bytes])
    text: TextPiece | None = None
    deltas: list[str] = field(default_factory=list[str])
    size: int = 0
    is_stored: asyncio.Event = field(default_factory=asyncio.Event)

    def add_text(self, piece: TextPiece) -> None:
        text = self.text
        if text is None or text[0] != piece[0] or text[2] != piece[2]:
            self.end_text()
            self.text = piece
        self.deltas.append(piece[1])
        self.size += len(piece[1])

    def add(self, event: bytes) -> None:
        self.end_text()
        self.events.append(event)
        self.size += len(event)

    def end_text(self) -> None:
        if self.text is not None:
            self.events.append(encoded(self.text._replace(delta="".join(self.deltas))))
            self.text = None
            self.deltas.clear()

    def to_store(self, thread_id: str, key: str) -> NewEvents:
        owner = None if self.lease is None else self.lease.owner
        return NewEvents(thread_id, self.events, key, owner, self.ends, look_at=self.look_at)


def encoded(event: BaseModel | TextPiece) -> bytes:
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
    except ValueError:  # texts of tools and models may have lone surrogates
        return to_json(encodable(shown), by_alias=True, exclude_none=True)


class LogWriter:
    def __init__(self, events: RunEvents, clock: Clock) -> None:
        self.events: RunEvents = events
        self.clock: Clock = clock
        name = secrets.token_hex(8)
        self._keys = (f"{name}.{number}" for number in count())
        self._waiting: dict[str, list[WaitingEvents]] = {}
        self._storing: Mapping[str, WaitingEvents] = {}
        self._urgent: set[str] = set()
        self._called = asyncio.Event()
        self._not_before = 0.0
        self._task: asyncio.Task[None] | None = None

    def add(
        self,
        thread_id: str,
        events: Iterable[BaseModel | TextPiece],
        *,
        lease: RenewedLease | None = None,
        ends: bool = False,
        look_at: float | None = None,
    ) -> None:
        """Add events to a thread's log; they are dropped if ``lease`` is lost by then."""
        added = list(events)
        if not added:
            return
        waiting = self._place(thread_id, lease)
        waiting.ends, waiting.look_at = ends, look_at
        for event in added:
            if type(event) is TextPiece:
                waiting.add_text(event)
            else:
                waiting.add(encoded(event))
        if ends or any(type(event) is TextMessageStartEvent for event in added):
            self._call_for(thread_id)
        if self._task is None:
            soon = asyncio.get_running_loop().time() + LEAST_REST
            self._not_before = max(self._not_before, soon)
            self._task = asyncio.create_task(self._write())

    def _place(self, thread_id: str, lease: RenewedLease | None) -> WaitingEvents:
        waiting = self._waiting.setdefault(thread_id, [])
        if not waiting or waiting[-1].lease is not lease or waiting[-1].ends:
            waiting.append(WaitingEvents(lease))
        return waiting[-1]

    def size(self, thread_id: str) -> int:
        return sum(each.size for each in self._waiting.get(thread_id, ()))

    def is_written(self, thread_id: str) -> bool:
        return thread_id not in self._waiting and thread_id not in self._storing

    async def flush(self, thread_id: str) -> None:
        if waiting := self._waiting.get(thread_id):
            self._call_for(thread_id)
            await waiting[-1].is_stored.wait()
        elif (storing := self._storing.get(thread_id)) is not None:
            await storing.is_stored.wait()

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
        """Remove and return the next batches: of all threads, or of those that must not wait."""
        urgent, self._urgent = self._urgent, set()
        self._called.clear()
        names = list(self._waiting) if all_threads else urgent & self._waiting.keys()
        taken = {name: self._waiting[name].pop(0) for name in names}
        for name, each in taken.items():
            each.end_text()
            if not self._waiting[name]:
                del self._waiting[name]
            elif name in urgent:  # a flush waits for all batches
                self._call_for(name)
        return taken

    async def _rest(self, seconds: float) -> None:
        if seconds > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._called.wait()

    def _end_batch(self) -> None:
        for each in self._storing.values():
            each.is_stored.set()
        self._storing = {}

    async def _store(self, batch: Mapping[str, WaitingEvents]) -> None:
        """Store a batch once, even if an append fails after the store has written it."""
        key, until = next(self._keys), self.clock.now() + PATIENCE
        new = [each.to_store(name, key) for name, each in batch.items()]
        is_tried = False
        while new:
            try:
                if is_tried:  # the store may have written some and refused others
                    new = [each for each in new if not await self.events.find(each.run, key)]
                await self.events.append_all(new, at=self.clock.now())
            except StoreError as error:
                if self.clock.now() >= until:
                    lost = sum(len(each.events) for each in new)
                    logger.exception("lost %d events of %d conversations", lost, len(new))
                    for each in new:  # another worker then reports the events
                        if (lease := batch[each.run].lease) is not None:
                            lease.lose()
                    return
                if not is_tried:
                    logger.warning("cannot store events of conversations yet: %s", error)
                is_tried = True
                await pause(self.clock, RETRY)
            else:
                return

"""The log of a thread's events: a client that returns gets all events that it missed.

The store has an event before any reader. The mark of an id ``NUMBER-MARK`` tells the event from
others that had its number before a crash of the database. The log is bounded: a reader that was
away too long gets :data:`MISSED`, and reads the tree again.

Clients choose the ids of threads, and each user has a separate set of ids. If another principal has
an id, the store keeps the thread under an id that no client can choose: a refusal would reveal the
ids of others.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing
from hashlib import blake2b

from pydantic import BaseModel

from anabranch._durable import EventBatch, EventId, MissedEventsError, NewEvents, RenewedLease
from anabranch.agents import Addition
from anabranch.chat._web.log_writer import LogWriter, TextPiece, encoded
from anabranch.stores import append_reported
from anabranch.tree import TreeStore

RUN_ENDS = (b'{"type":"RUN_FINISHED"', b'{"type":"RUN_ERROR"')
"""The start of the last event of a run."""

MISSED = b'{"type":"CUSTOM","name":"anabranch.missed","value":null}'
"""The event for a reader whose missed events are deleted or lost."""

NOWHERE = EventId(-1, 0)

_ID = re.compile(r"([0-9]{1,18})-([0-9a-f]{1,16})")

MOST_WAITING = 2**20
"""The most bytes that wait for the store before a turn waits as well."""

MARK = "@"
"""A separator that no chosen id of a thread contains."""
OWN = re.compile(rf"{MARK}[0-9a-f]{{32}}\Z")


def stored_ids(chosen: str, principal: str | None) -> Iterator[str]:
    yield chosen
    whose = blake2b((principal or "").encode("utf-8", "surrogatepass"), digest_size=16)
    yield f"{chosen}{MARK}{whose.hexdigest()}"


def shown_id(stored: str) -> str:
    return OWN.sub("", stored)


class ThreadLog:
    def __init__(self, writer: LogWriter, thread_id: str) -> None:
        self.thread_id = thread_id
        self.shown_id: str = shown_id(thread_id)
        self._writer = writer
        self._events = writer.events
        self._clock = writer.clock

    @property
    def is_written(self) -> bool:
        return self._writer.is_written(self.thread_id)

    async def put(self, event: bytes) -> int:
        await self.flush()
        now = self._clock.now()
        return await self._events.append(self.thread_id, [event], at=now)

    async def begun(self, run_id: str) -> int | None:
        """Return the number of the last event before a run, ``None`` if it has not started."""
        found = await self._events.find(self.thread_id, run_id)
        return None if found is None else found - 1

    def add(
        self,
        events: Iterable[BaseModel | TextPiece],
        *,
        lease: RenewedLease | None = None,
        ends: bool = False,
        look_at: float | None = None,
    ) -> None:
        self._writer.add(self.thread_id, events, lease=lease, ends=ends, look_at=look_at)

    async def write(
        self,
        events: Iterable[BaseModel | TextPiece],
        trees: TreeStore,
        added: Addition,
        owner: str | None,
        *,
        ends: bool,
    ) -> None:
        """Store events together with nodes and results, if ``owner`` still has the turn."""
        await self.flush()
        new = NewEvents(self.thread_id, [encoded(each) for each in events], owner=owner, ends=ends)
        nodes, results, refs = added.nodes, added.results, added.refs
        await append_reported(
            trees, self._events, new, nodes, results=results, refs=refs, at=self._clock.now()
        )

    async def room(self) -> None:
        if self._writer.size(self.thread_id) > MOST_WAITING:
            await self.flush()

    async def flush(self) -> None:
        await self._writer.flush(self.thread_id)

    async def last(self) -> int:
        await self.flush()
        return await self._events.last(self.thread_id)

    async def id_of(self, number: int | None = None) -> EventId:
        if number is None:
            await self.flush()
        return await self._events.id_of(self.thread_id, number)

    async def read(self, after: int, until: int | None = None) -> list[bytes]:
        last, found = await self.last() if until is None else until, list[bytes]()
        if last > after:
            async with aclosing(self.follow(after)) as following:
                async for first, events, _ in following:
                    found += events
                    if first + len(events) > last:
                        break
        return found

    async def follow(self, after: int | EventId) -> AsyncGenerator[EventBatch]:
        """Yield the events after a number or an event as they happen, without end."""
        while True:
            try:
                async with aclosing(self._events.follow(self.thread_id, after)) as following:
                    async for batch in following:
                        yield batch
            except MissedEventsError as error:
                after = error.last
                yield EventBatch(after.number, [MISSED], [after.mark])


def position(text: str) -> EventId:
    """Return the event id that ``text`` is; ``0`` is the beginning, as ``0-0`` is."""
    found = _ID.fullmatch("0-0" if text == "0" else text)
    return EventId(int(found[1]), int(found[2], 16)) if found else NOWHERE

"""The latest events of followed runs, in memory, shared by all readers in this process.

A reader continues in the run's tail or, if it lags behind the tail, in the store. A crash of the
database may lose events that a tail still has. If a number then has another mark, the tail starts
again, and readers at a lost event ask the store. One loop cannot wake another's tasks, so each loop
has separate tails.

Other processes append as well: Postgres announces their events, SQLite is polled. A lost
announcement delays events, and loses none.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import sqlalchemy as sa

from anabranch._durable import EventBatch, EventId, MissedEventsError
from anabranch.errors import StoreError
from anabranch.stores._database import Database
from anabranch.stores._event_tables import CHANNEL, RUN
from anabranch.stores._sql import to_bytes

TAIL_BYTES = 64 * 1024
"""Maximum bytes of events in a tail; a single larger event is allowed."""

POLL = 0.05
"""Seconds between two polls of a SQLite file."""

CHECK = 2.0
"""Seconds until a read of the store when Postgres announces nothing."""

RETRY = 1.0
"""Seconds until the next attempt after a failure of the store."""

logger: logging.Logger = logging.getLogger("anabranch.stores")

UNKNOWN = -1
"""Stands for the mark of an event whose number alone is known; no event has this mark."""


@dataclass(frozen=True, slots=True)
class Page:
    """Consecutive events of a run after one with the mark ``before``, and the run's last number."""

    events: Sequence[bytes]
    marks: Sequence[int]
    last: int
    before: int


Read: TypeAlias = Callable[[str, EventId], Awaitable[Page]]
"""Reads the events after one event of a run; raises :class:`MissedEventsError`."""

Watch: TypeAlias = Callable[["dict[str, Tail]"], Coroutine[Any, Any, None]]
"""Wakes tails when other processes have added events; runs until it is cancelled."""


def name_of(run: str) -> str:
    """Return a run's name for notifications of Postgres, which cannot carry arbitrary text."""
    return hashlib.md5(to_bytes(run), usedforsecurity=False).hexdigest()


class Tail:
    """The latest events of one run, and the readers that wait for further events."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.readers: int = 0
        self.end: int = -1
        """The number of the last event that the tail knows; -1 before the first read."""
        self.is_current: bool = False
        """Whether the tail has every event that it knows to be stored."""
        self.reading: asyncio.Lock = asyncio.Lock()
        self._events: list[bytes] = []
        self._marks: list[int] = [UNKNOWN]
        """The mark of the event before ``_events``, then the mark of each event."""
        self._size = 0
        self._wakes = 0
        self._changed = asyncio.Event()

    def has(self, at: EventId) -> bool:
        """Return whether the tail has the event ``at``, or begins directly after it."""
        place = at.number - self.end - 1
        return -len(self._marks) <= place < 0 and at.mark in (UNKNOWN, self._marks[place])

    def after(self, at: EventId) -> EventBatch | None:
        """Return the events after ``at``; ``None`` if there are none or the tail lacks one."""
        place = at.number - self.end
        if place == 0 or not self.has(at):
            return None
        return EventBatch(at.number + 1, self._events[place:], self._marks[place:])

    def extend(
        self, first: int, events: Sequence[bytes], marks: Sequence[int], before: int = UNKNOWN
    ) -> None:
        """Add events of the store; ``before`` is the mark of the event before number ``first``."""
        is_gap = first > self.end + 1  # readers read the gap from the store
        if is_gap or self._is_lost(first - 1, [before, *marks]):
            self._begin(first - 1, before)
        old = self.end + 1 - first
        new = events[old:]
        self._events += new
        self._marks += marks[old:]
        self.end += len(new)
        self._size += sum(map(len, new))
        if self._size > 2 * TAIL_BYTES:  # twice the bound, so that dropping is rare
            self._drop()
        self._notify()

    def _is_lost(self, number: int, marks: Sequence[int]) -> bool:
        """Return whether the store, with ``marks`` from ``number`` on, has other events.

        The newest common event decides: if its marks agree, all earlier events agree.
        """
        newest = min(self.end, number + len(marks) - 1)
        stored, place = marks[newest - number], newest - self.end - 1
        here = self._marks[place] if -place <= len(self._marks) else UNKNOWN
        return UNKNOWN not in {stored, here} and stored != here

    def _begin(self, end: int, mark: int) -> None:
        self._events, self._marks, self._size, self.end = [], [mark], 0, end

    def forget(self) -> None:
        """Drop all events, because the store has lost some; wake readers to read from it."""
        self._begin(-1, UNKNOWN)
        self.is_current = False
        self._notify()

    def _drop(self) -> None:
        surplus = 0
        while self._size > TAIL_BYTES and surplus < len(self._events) - 1:
            self._size -= len(self._events[surplus])
            surplus += 1
        del self._events[:surplus], self._marks[:surplus]

    def wake(self, last: int | None = None) -> None:
        """Wake readers to read from the store, unless the tail has the events up to ``last``."""
        if last is None or last > self.end:
            self._wakes += 1
            self.is_current = False
            self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait(self) -> None:
        await self._changed.wait()

    async def read(self, at: EventId, read: Read) -> EventBatch | None:
        """Return the events after ``at`` from the store, and add them to the tail."""
        first = at.number + 1
        if at.number < self.end:  # the tail has dropped the next events
            page = await read(self.run, at)
            if not page.events:
                self.forget()
                return None
            return EventBatch(first, page.events, page.marks)
        async with self.reading:
            if found := self.after(at):  # another reader has read it meanwhile
                return found
            wakes = self._wakes
            try:
                page = await read(self.run, at)
            except MissedEventsError:
                if self.has(at):
                    self.forget()
                raise
            self.extend(first, page.events, page.marks, page.before)
            if self._wakes == wakes:
                self.is_current = self.end >= page.last
            return EventBatch(first, page.events, page.marks) if page.events else None


class Tails:
    """The latest events of every run that readers of this process follow."""

    def __init__(self, read: Read, watch: Watch | None) -> None:
        self._read = read
        self._watch = watch
        self._loops: dict[asyncio.AbstractEventLoop, dict[str, Tail]] = {}
        self._watching: dict[asyncio.AbstractEventLoop, asyncio.Task[None]] = {}

    def publish(self, run: str, first: int, events: Sequence[bytes], mark: int) -> None:
        """Pass events that the store took under one ``mark`` to the readers in this process."""
        name, marks = name_of(run), [mark] * len(events)
        self._on_each_loop(
            lambda tails: tails[name].extend(first, events, marks) if name in tails else None
        )

    def wake_all(self) -> None:
        self._on_each_loop(_wake)

    def _on_each_loop(self, work: Callable[[dict[str, Tail]], None]) -> None:
        here = asyncio.get_running_loop()
        for loop, tails in list(self._loops.items()):
            if loop is here:
                work(tails)
            else:
                with suppress(RuntimeError):  # the loop is closed, and its readers are gone
                    loop.call_soon_threadsafe(work, tails)

    async def follow(self, run: str, after: int | EventId) -> AsyncGenerator[EventBatch]:
        """Yield the events of a run after an event or its number, in batches, without end."""
        tail = self._enter(run)
        at = EventId(after, UNKNOWN) if isinstance(after, int) else after
        if at.number == 0:  # the reader has read no event that could be lost
            at = EventId(0, UNKNOWN)
        try:
            while True:
                batch = tail.after(at)
                if batch is None and tail.is_current and tail.end == at.number and tail.has(at):
                    await tail.wait()
                elif batch is None:
                    batch = await tail.read(at, self._read)
                if batch is not None:
                    yield batch
                    at = EventId(at.number + len(batch.events), batch.marks[-1])
        finally:
            self._leave(tail)

    def _enter(self, run: str) -> Tail:
        loop = asyncio.get_running_loop()
        tails = self._loops.setdefault(loop, {})
        if not tails and self._watch is not None:
            self._watching[loop] = loop.create_task(self._watch(tails))
        tail = tails.setdefault(name_of(run), Tail(run))
        tail.readers += 1
        return tail

    def _leave(self, tail: Tail) -> None:
        tail.readers -= 1
        if tail.readers:
            return
        loop = asyncio.get_running_loop()
        tails = self._loops[loop]
        del tails[name_of(tail.run)]
        if not tails:
            del self._loops[loop]
            if loop in self._watching:
                self._watching.pop(loop).cancel()


def _wake(tails: dict[str, Tail]) -> None:
    for tail in tails.values():
        tail.wake()


def watch_of(database: Database) -> Watch | None:
    """Return the watcher for events of other processes; ``None`` if there can be none."""
    if not database.is_shared:
        return None
    return partial(_watch, database, _announced if database.is_postgresql else _polled)


async def _watch(
    database: Database,
    attempt: Callable[[Database, dict[str, Tail]], Awaitable[None]],
    tails: dict[str, Tail],
) -> None:
    """Wake tails when other processes add events, until cancelled; start again after a failure."""
    while True:
        try:
            await attempt(database, tails)
        except StoreError as error:
            logger.warning("cannot see run events of other processes: %s", error)
        _wake(tails)  # the readers read the store, and see its error
        await asyncio.sleep(RETRY)


async def _polled(database: Database, tails: dict[str, Tail]) -> None:
    version: int | None = None
    while True:
        before, version = version, await database.version()
        if version != before:
            await _look(database, tails)
        await asyncio.sleep(POLL)


async def _announced(database: Database, tails: dict[str, Tail]) -> None:
    async with database.listening(CHANNEL) as heard:
        while True:
            await _look(database, tails)
            async for payload in heard(CHECK):
                name, _, last = payload.partition(":")
                if name in tails:
                    tails[name].wake(int(last))


async def _look(database: Database, tails: dict[str, Tail]) -> None:
    """Wake the tails that lack events of the store."""
    followed = {tail.run: tail for tail in tails.values()}
    for run, last in await database.read(lambda connection: _heads(connection, list(followed))):
        followed[run].wake(last)


def _heads(connection: sa.Connection, runs: Sequence[str]) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    for start in range(0, len(runs), 500):
        some = sa.select(RUN.c.run, RUN.c.last).where(RUN.c.run.in_(runs[start : start + 500]))
        found += [(run, last) for run, last in connection.execute(some)]
    return found

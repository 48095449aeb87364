"""The latest events of the runs that are followed in this process, shared by all who follow them.

A reader has a place of its own: the id of the last event that it was given. What it needs is taken
from the run's tail in memory; if it has fallen behind the tail, from the store. A tail is bounded, and
a reader holds nothing but what it was given last.

A crash of the database may take events from the store that are in a tail. Where a number then has
another mark, the tail is begun again, and readers who are at an event that is lost ask the store.

Each event loop has tails of its own, since what waits in one loop cannot be woken from another.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

from anabranch._durable.run_events import EventBatch, EventId, MissedEventsError
from anabranch.stores._columns import to_bytes

TAIL_BYTES = 64 * 1024
"""The most bytes of events that a tail holds, but for a single event that is larger."""

UNKNOWN = -1
"""The mark of an event of which only the number is known; no event has it."""


@dataclass(frozen=True, slots=True)
class Page:
    """Events that were read from the store.

    Attributes:
        events: none if there are no further ones.
        marks: the mark of each.
        last: the number of the run's last event at that time.
        before: the mark of the event before them.
    """

    events: Sequence[bytes]
    marks: Sequence[int]
    last: int
    before: int


Read: TypeAlias = Callable[[str, EventId], Awaitable[Page]]
"""Reads what follows on an event of a run; raises :class:`MissedEventsError`."""

Watch: TypeAlias = Callable[["dict[str, Tail]"], Coroutine[Any, Any, None]]
"""Wakes tails when other processes have added events; runs until it is cancelled."""


def name_of(run: str) -> str:
    """Return what a run is called in announcements, which cannot carry any text."""
    return hashlib.md5(to_bytes(run), usedforsecurity=False).hexdigest()


class Tail:
    """The latest events of one run, and who waits for further ones."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.readers: int = 0
        self.end: int = -1
        """The number of the last event that is known here; -1 before anything is."""
        self.is_current: bool = False
        """Whether no event after ``end`` is known to be in the store."""
        self.reading: asyncio.Lock = asyncio.Lock()
        self._events: list[bytes] = []
        self._marks: list[int] = [UNKNOWN]
        """That of the event before, and those of the events."""
        self._size = 0
        self._wakes = 0
        self._changed = asyncio.Event()

    def has(self, at: EventId) -> bool:
        """Return whether an event is here, or is the one before."""
        place = at.number - self.end - 1
        return -len(self._marks) <= place < 0 and at.mark in (UNKNOWN, self._marks[place])

    def after(self, at: EventId) -> EventBatch | None:
        """Return the events after ``at``, ``None`` if there are none, or they are not all here."""
        place = at.number - self.end
        if place == 0 or not self.has(at):
            return None
        return EventBatch(at.number + 1, self._events[place:], self._marks[place:])

    def extend(
        self, first: int, events: Sequence[bytes], marks: Sequence[int], before: int = UNKNOWN
    ) -> None:
        """Add events that are stored: the number of the first, their marks, the mark before them."""
        is_gap = first > self.end + 1  # what lies between is read from the store
        if is_gap or self._is_lost(first - 1, [before, *marks]):
            self._begin(first - 1, before)
        old = self.end + 1 - first
        new = events[old:]
        self._events += new
        self._marks += marks[old:]
        self.end += len(new)
        self._size += sum(map(len, new))
        if self._size > 2 * TAIL_BYTES:  # so that dropping is rare
            self._drop()
        self._notify()

    def _is_lost(self, number: int, marks: Sequence[int]) -> bool:
        """Return whether an event here is another one in the store, where marks follow from ``number`` on.

        The newest of both tells it: if that is the same, so are those before it.
        """
        newest = min(self.end, number + len(marks) - 1)
        stored, place = marks[newest - number], newest - self.end - 1
        here = self._marks[place] if -place <= len(self._marks) else UNKNOWN
        return UNKNOWN not in {stored, here} and stored != here

    def _begin(self, end: int, mark: int) -> None:
        self._events, self._marks, self._size, self.end = [], [mark], 0, end

    def forget(self) -> None:
        """Have the store read again: it has lost what is here."""
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
        """Have the store read again, unless all up to number ``last`` is known here."""
        if last is None or last > self.end:
            self._wakes += 1
            self.is_current = False
            self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait(self) -> None:
        """Return when there may be more."""
        await self._changed.wait()

    async def read(self, at: EventId, read: Read) -> EventBatch | None:
        """Return what follows on ``at``, from the store; it becomes part of the tail."""
        first = at.number + 1
        if at.number < self.end:  # an own way through what the tail has no more
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
    """The tails of all runs that are followed.

    Args:
        read: reads from the store.
        watch: wakes the tails of one event loop; ``None`` if no other process has the store.
    """

    def __init__(self, read: Read, watch: Watch | None) -> None:
        self._read = read
        self._watch = watch
        self._loops: dict[asyncio.AbstractEventLoop, dict[str, Tail]] = {}
        self._watching: dict[asyncio.AbstractEventLoop, asyncio.Task[None]] = {}

    def publish(self, run: str, first: int, events: Sequence[bytes], mark: int) -> None:
        """Give events that have been stored, under one mark, to the readers of this process."""
        name, marks = name_of(run), [mark] * len(events)
        self._on_each_loop(
            lambda tails: tails[name].extend(first, events, marks) if name in tails else None
        )

    def wake_all(self) -> None:
        """Have all readers look into the store."""
        self._on_each_loop(lambda tails: wake(tails.values()))

    def _on_each_loop(self, work: Callable[[dict[str, Tail]], None]) -> None:
        here = asyncio.get_running_loop()
        for loop, tails in list(self._loops.items()):
            if loop is here:
                work(tails)
            else:
                with suppress(RuntimeError):  # it has been closed, and its readers with it
                    loop.call_soon_threadsafe(work, tails)

    async def follow(self, run: str, after: int | EventId) -> AsyncGenerator[EventBatch]:
        """Yield the events of a run after a number, or an event, in batches, for ever."""
        tail = self._enter(run)
        at = EventId(after, UNKNOWN) if isinstance(after, int) else after
        if at.number == 0:  # nothing was read that could be lost
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


def wake(tails: Iterable[Tail]) -> None:
    """Have the readers of ``tails`` look into the store."""
    for tail in tails:
        tail.wake()

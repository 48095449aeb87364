"""The latest events of the runs that are followed in this process, shared by all who follow them.

A reader has a place of its own: the number of the last event that it was given. What it needs is
taken from the run's tail in memory; if it has fallen behind the tail, from the store. A tail is
bounded, and a reader holds nothing but what it was given last.

Each event loop has tails of its own, since what waits in one loop cannot be woken from another.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

from anabranch.stores._columns import to_bytes

__all__ = ["Page", "Tail", "Tails", "name_of"]

TAIL_BYTES = 64 * 1024
"""The most bytes of events that a tail holds, but for a single event that is larger."""


@dataclass(frozen=True, slots=True)
class Page:
    """Events that were read from the store, and the number of the run's last one at that time."""

    events: Sequence[bytes]
    last: int


Read: TypeAlias = Callable[[str, int], Awaitable[Page]]
"""Reads what follows on a number of a run."""

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
        self._size = 0
        self._wakes = 0
        self._changed = asyncio.Event()

    def after(self, number: int) -> Sequence[bytes]:
        """Return the events after ``number``; none if they are not all here."""
        start = self.end - len(self._events)
        return self._events[number - start :] if start <= number else ()

    def extend(self, first: int, events: Sequence[bytes]) -> None:
        """Add events that are stored, of which the first has the number ``first``."""
        if first > self.end + 1:  # what lies between is read from the store
            self._events, self._size, self.end = [], 0, first - 1
        new = events[self.end + 1 - first :]
        self._events += new
        self.end += len(new)
        self._size += sum(map(len, new))
        if self._size > 2 * TAIL_BYTES:  # so that dropping is rare
            self._drop()
        self._notify()

    def _drop(self) -> None:
        surplus = 0
        while self._size > TAIL_BYTES and surplus < len(self._events) - 1:
            self._size -= len(self._events[surplus])
            surplus += 1
        del self._events[:surplus]

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

    async def read(self, number: int, read: Read) -> Sequence[bytes]:
        """Return what follows on ``number``, from the store; it becomes part of the tail."""
        if number < self.end:  # an own way through what the tail has no more
            return (await read(self.run, number)).events
        async with self.reading:
            if found := self.after(number):  # another reader has read it meanwhile
                return found
            wakes = self._wakes
            page = await read(self.run, number)
            self.extend(number + 1, page.events)
            if self._wakes == wakes:
                self.is_current = self.end >= page.last
            return page.events


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

    def publish(self, run: str, first: int, events: Sequence[bytes]) -> None:
        """Give events that have been stored to the readers of this process."""
        name = name_of(run)
        self._on_each_loop(
            lambda tails: tails[name].extend(first, events) if name in tails else None
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

    async def follow(self, run: str, after: int) -> AsyncGenerator[tuple[int, Sequence[bytes]]]:
        """Yield the events of a run after a number, in batches, for ever."""
        tail = self._enter(run)
        number = after
        try:
            while True:
                events = tail.after(number)
                if not events and (number != tail.end or not tail.is_current):
                    events = await tail.read(number, self._read)
                elif not events:
                    await tail.wait()
                if events:
                    yield number + 1, events
                    number += len(events)
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

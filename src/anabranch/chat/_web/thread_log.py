"""The log of a thread's events: each has a number, so that a reader can come back for what it missed.

A reader never holds up a writer: it reads what is there, as fast as it can. The tree is the record of
the conversation; the log is for watching it happen. It is bounded, so a reader who was away for too
long, or since before a restart, is sent :data:`MISSED` and reads the tree again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass

from pydantic import BaseModel

from anabranch._encodable import encodable

__all__ = ["EVENTS_HELD", "MISSED", "LoggedEvent", "ThreadLog"]

EVENTS_HELD = 20_000
"""The most events that a log holds."""

MISSED = b'{"type":"CUSTOM","name":"anabranch.missed","value":null}'
"""The event for a reader who has missed events that are no longer held."""


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """An event as it is sent: ``position`` is what a reader gives to be sent what follows."""

    position: str
    data: bytes


class ThreadLog:
    """The events of one thread, in the order in which they happened.

    Args:
        epoch: tells this log from that of an earlier process.
        held: how many events are held.
    """

    def __init__(self, epoch: str, held: int = EVENTS_HELD) -> None:
        self._epoch = epoch
        self._held = held
        self._events: list[bytes] = []
        self._dropped = 0
        self._changed = asyncio.Event()
        self.readers: int = 0

    @property
    def last(self) -> int:
        """The number of the last event; 0 before the first."""
        return self._dropped + len(self._events)

    def add(self, events: Iterable[BaseModel]) -> None:
        """Add events."""
        self._events += (
            encodable(event).model_dump_json(by_alias=True, exclude_none=True).encode()
            for event in events
        )
        if len(self._events) > 2 * self._held:  # so that dropping is rare
            surplus = len(self._events) - self._held
            del self._events[:surplus]
            self._dropped += surplus
        self._changed.set()
        self._changed = asyncio.Event()

    async def follow(
        self, after: int | str, idle: float | None = None
    ) -> AsyncIterator[LoggedEvent | None]:
        """Yield the events after a number, or after a position; wait for further ones, for ever.

        Yields ``None`` whenever nothing has happened for ``idle`` seconds.
        """
        number, missed = (after, False) if isinstance(after, int) else self._number(after)
        self.readers += 1
        try:
            while True:
                if number < self._dropped:
                    number, missed = self._dropped, True
                if missed:
                    missed, number = False, self.last
                    yield LoggedEvent(self._position(number), MISSED)
                elif number < self.last:
                    data = self._events[number - self._dropped]
                    number += 1
                    yield LoggedEvent(self._position(number), data)
                else:
                    try:
                        await asyncio.wait_for(self._changed.wait(), idle)
                    except TimeoutError:
                        yield None
        finally:
            self.readers -= 1

    @property
    def position(self) -> str:
        """What a reader gives who has seen all there is."""
        return self._position(self.last)

    def _position(self, number: int) -> str:
        return f"{self._epoch}-{number}"

    def _number(self, position: str) -> tuple[int, bool]:
        """Return the number of a position, and whether it is of another log."""
        epoch, _, number = position.rpartition("-")
        if epoch == self._epoch and number.isdecimal() and len(number) < 19:  # noqa: PLR2004
            return min(int(number), self.last), False
        return self.last, True

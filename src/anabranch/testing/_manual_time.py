"""A clock that a test moves, and a source of predictable call ids."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count

from anabranch._aio import Timer


@dataclass(order=True)
class _Alarm:
    when: float
    order: int
    callback: Callable[[], None] = field(compare=False)
    cancelled: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        self.cancelled = True


class ManualClock:
    """A clock that only a test moves; ``start`` is in seconds since the epoch."""

    def __init__(self, start: float = 1_000_000_000.0) -> None:
        self._now = start
        self._alarms: list[_Alarm] = []
        self._order = count()

    def now(self) -> float:
        """Return the seconds since the epoch."""
        return self._now

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Call ``callback`` when the clock reaches ``when``, or immediately if that is past."""
        alarm = _Alarm(when, next(self._order), callback)
        self._alarms.append(alarm)
        self.advance(0)
        return alarm

    def advance(self, seconds: float) -> None:
        """Move the clock, and call the callbacks that become due, in the order of their times."""
        target = self._now + seconds
        while due := sorted(a for a in self._alarms if a.when <= target and not a.cancelled):
            alarm = due[0]
            self._alarms.remove(alarm)
            self._now = max(self._now, alarm.when)
            alarm.callback()
        self._alarms = [alarm for alarm in self._alarms if not alarm.cancelled]
        self._now = target

    @asynccontextmanager
    async def running(self, step: float = 0.1) -> AsyncGenerator[None]:
        """Move the clock by ``step`` seconds in each pass of the event loop, inside the block."""

        async def run() -> None:
            while True:
                await asyncio.sleep(0)
                self.advance(step)

        moving = asyncio.ensure_future(run())
        try:
            yield
        finally:
            moving.cancel()
            await asyncio.wait({moving})


class SequentialIds:
    """A source of the call ids ``call_1``, ``call_2`` and so on."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def call_id(self) -> str:
        """Return the next id."""
        return f"call_{next(self._numbers)}"

    def secret(self) -> str:
        """Return the same text for each call, so that a test can compare random values."""
        return "not a secret"

"""Time that a test moves, predictable ids, and an engine that loses, repeats and delays wakes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from random import Random
from typing import NoReturn

from anabranch._aio import Clock, SystemClock, Timer
from anabranch._durable import Advance, Backlog, Engine, Wake
from anabranch.engines import InProcessEngine
from anabranch.errors import StoreError


@dataclass(order=True)
class _Alarm:
    when: float
    order: int
    callback: Callable[[], None] = field(compare=False)
    cancelled: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        self.cancelled = True


class ManualClock:
    """A clock that moves only when a test calls :meth:`advance`.

    ``start`` is in seconds since the epoch.
    """

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
        """Move the clock forward, and run the callbacks that become due, in order."""
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
        """Move the clock in the block: ``step`` seconds in each iteration of the event loop."""

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
    """A source of predictable call ids: ``call_1``, ``call_2`` and so on."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def call_id(self) -> str:
        """Return the next id."""
        return f"call_{next(self._numbers)}"

    def secret(self) -> str:
        """Return the same secret for each call, for predictable random values."""
        return "not a secret"


@dataclass(frozen=True, slots=True, eq=False)
class _Worker:
    tools: Mapping[str, str]
    advance: Advance

    def takes(self, wake: Wake) -> bool:
        return wake.tool in self.tools and wake.version in {"", self.tools[wake.tool]}

    async def run(self, wake: Wake) -> None:
        await self.advance(wake)


class TestEngine:
    """An engine for tests that loses, doubles and delays wakes, as real engines may.

    The seed, the wake's name and the number of its deliveries decide each fault, so a test run can
    be repeated. With all shares 0, the engine behaves like the inner engine.

    Args:
        seed: the seed of the faults.
        drop: the share of wakes to lose, 0 to 1.
        double: the share of wakes to deliver twice, 0 to 1: at the same time if another worker is
            free, otherwise one after the other.
        delay: the share of wakes to delay, 0 to 1, so that later wakes overtake them.
        longest: the maximum delay in seconds.
        clock: the time; by default, the system's.
        engine: the inner engine, which runs the calls; by default, an engine in this process with
            the same clock.

    Attributes:
        is_down: set to true to make the engine unreachable: wakes raise ``StoreError``.
        happened: the number of faults by kind: ``drop``, ``double``, ``delay``.

    Raises:
        ValueError: if a share is not between 0 and 1, or ``longest`` is negative.
    """

    __test__ = False  # otherwise pytest takes it for a class of tests

    def __init__(
        self,
        seed: int,
        *,
        drop: float = 0.0,
        double: float = 0.0,
        delay: float = 0.0,
        longest: float = 60.0,
        clock: Clock | None = None,
        engine: Engine | None = None,
    ) -> None:
        self._shares = {"drop": drop, "double": double, "delay": delay}
        for name, share in self._shares.items():
            if not 0 <= share <= 1:
                raise ValueError(f"{name} must be between 0 and 1, not {share}.")
        if longest < 0:
            raise ValueError(f"longest must not be negative, got {longest}.")
        self.is_down = False
        self.happened: Counter[str] = Counter()
        self._seed = seed
        self._longest = longest
        self._clock = clock or SystemClock()
        self._engine: Engine = engine or InProcessEngine(self._clock)
        self._came: Counter[tuple[str, ...]] = Counter()
        self._given: list[tuple[float, Wake]] = []
        self._lost: set[Wake] = set()
        self._workers: list[_Worker] = []

    async def wake(self, wake: Wake) -> None:
        """Request that a worker continues a call; the wake may be lost or delayed."""
        self._check_up()
        coming = self._coming(wake)
        if coming is not None:
            await self._engine.wake(coming)

    async def work(self, tools: Mapping[str, str], advance: Advance, concurrency: int) -> NoReturn:
        """Run the worker's loop until cancelled; doubled wakes may exceed ``concurrency``."""

        async def unreliably(wake: Wake) -> None:
            await self._advance(wake, worker)

        worker = _Worker(tools, advance)
        self._workers.append(worker)
        try:
            await self._engine.work(tools, unreliably, concurrency)
        finally:
            self._workers.remove(worker)

    async def backlog(self) -> Backlog:
        """Return the number of waiting and running wakes."""
        return await self._engine.backlog()

    async def close(self) -> None:
        """Close connections; a second call does nothing. Afterwards, other methods raise."""
        await self._engine.close()

    async def restore(self, since: float) -> None:
        """Simulate an engine that was restored from a backup of the time ``since``.

        Wakes after ``since`` that no worker has taken are lost, and earlier wakes are delivered
        again. Running calls continue.
        """
        self._lost |= {wake for at, wake in self._given if at > since}
        self._given = [each for each in self._given if each[0] <= since]
        for _, wake in self._given:
            await self._engine.wake(wake)

    # -- the faults --------------------------------------------------------------------------

    def _happens(self, fault: str, *name: str) -> Random | None:
        """Return the random source for a fault's details, or ``None`` if the fault does not happen."""
        what = (fault, *name)
        self._came[what] += 1
        random = Random(f"{self._seed} {what} {self._came[what]}")  # noqa: S311 - no secret
        if random.random() >= self._shares[fault]:
            return None
        self.happened[fault] += 1
        return random

    def _coming(self, wake: Wake) -> Wake | None:
        if self._happens("drop", wake.call, wake.turn) is not None:
            return None
        late = self._happens("delay", wake.call, wake.turn)
        if late is not None:
            due = max(wake.not_before, self._clock.now())
            wake = replace(wake, not_before=due + late.uniform(0, self._longest))
        self._given.append((self._clock.now(), wake))
        self._lost.discard(wake)
        return wake

    async def _advance(self, wake: Wake, worker: _Worker) -> None:
        if wake in self._lost:
            return
        doubled = self._happens("double", wake.call, wake.turn)
        others = [each for each in self._workers if each is not worker and each.takes(wake)]
        if doubled is None or not others:
            for _ in range(1 if doubled is None else 2):
                await worker.advance(wake)
            return
        async with asyncio.TaskGroup() as group:
            for each in (worker, doubled.choice(others)):
                group.create_task(each.run(wake))

    def _check_up(self) -> None:
        if self.is_down:
            raise StoreError("The engine cannot be reached.")

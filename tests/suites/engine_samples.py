"""Samples for the checks of engines: wakes, workers that record, and waits for conditions."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeAlias

from anabranch._aio import SystemClock, cancel_and_wait, run_every
from anabranch.engines import Advance, Engine, Wake
from tests.suites.expectations import yes

OpenEngine: TypeAlias = Callable[[], Engine]
"""Opens an engine."""

PATIENCE = 120.0
"""Seconds after which a check gives up waiting for an event."""

ODD = (
    "\0",
    "\x1b[0m\x7f",
    "a/b",
    "a%2Fb",
    "a_b",
    "____",
    "%%%%",
    "no a?b",
    "'); --",
    "\u2028é",
    "\U0001f642" * 200,
    "\U0001f642" * 199 + "x",
)
"""Names that a database, an address or a pattern may misread."""

TOOLS: Mapping[str, str] = {"a": "1", "b": "1"}


def a_wake(
    call: str, turn: str = "0", *, tool: str = "a", version: str = "", not_before: float = 0.0
) -> Wake:
    return Wake(call, turn, tool, version, not_before)


class Changes:
    """Lets a check wait for a condition."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    def report(self) -> None:
        self._changed.set()

    async def until(self, condition: Callable[[], bool], promise: str) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"{promise}: it has not happened") from None


class Worker(Changes):
    """A worker whose advances record their wakes, and behave as the check demands.

    Attributes:
        begun: the wakes of all advances, in their order of start.
        running: the wakes of running advances.
        most: maximum number of advances that ran at once, by shared property.
        failing: exceptions that the advances of a call raise, in order, by the call's name.
        gate: advances wait until this is set.
    """

    def __init__(self, *, is_open: bool = True) -> None:
        super().__init__()
        self.begun: list[Wake] = []
        self.running: list[Wake] = []
        self.most: Counter[str] = Counter()
        self.failing: dict[str, list[Exception]] = {}
        self.gate = asyncio.Event()
        if is_open:
            self.gate.set()

    async def advance(self, wake: Wake) -> None:
        self.begun.append(wake)
        self.running.append(wake)
        self.most["all"] = max(self.most["all"], len(self.running))
        for kind in ("call", "tool"):
            value = getattr(wake, kind)
            alike = sum(getattr(each, kind) == value for each in self.running)
            self.most[f"{kind} {value}"] = max(self.most[f"{kind} {value}"], alike)
        self.report()
        try:
            await self.gate.wait()
        finally:
            self.running.remove(wake)
            self.report()
        if planned := self.failing.get(wake.call):
            raise planned.pop(0)

    def times(self, call: str) -> int:
        return sum(wake.call == call for wake in self.begun)

    async def until_times(self, call: str, times: int, promise: str) -> None:
        await self.until(lambda: self.times(call) >= times, promise)

    async def until_turn(self, call: str, turn: str, promise: str) -> None:
        await self.until(
            lambda: any((wake.call, wake.turn) == (call, turn) for wake in self.begun), promise
        )

    async def until_calls(self, count: int, promise: str) -> None:
        await self.until(lambda: len({wake.call for wake in self.begun}) >= count, promise)

    async def until_running(self, count: int, promise: str) -> None:
        await self.until(lambda: len(self.running) == count, promise)

    def ran_at_most(self, most: int, kind: str, promise: str) -> None:
        yes(self.most[kind] <= most, promise)


@asynccontextmanager
async def working(
    engine: Engine, advance: Advance, tools: Mapping[str, str] = TOOLS, concurrency: int = 10
) -> AsyncGenerator[None]:
    worker = asyncio.ensure_future(engine.work(tools, advance, concurrency))
    try:
        yield
    finally:
        await cancel_and_wait([worker])
        if not worker.cancelled():
            worker.result()  # raises the worker's exception


@asynccontextmanager
async def waking(engine: Engine, overdue: Wake) -> AsyncGenerator[None]:
    """Wake ``overdue`` repeatedly within the block, as the periodic work over a store does."""
    wake = partial(engine.wake, overdue)
    periodic = asyncio.ensure_future(run_every(SystemClock(), 0.2, "overdue", wake))
    try:
        yield
    finally:
        await cancel_and_wait([periodic])

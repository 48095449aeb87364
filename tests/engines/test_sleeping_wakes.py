"""Wakes that sleep cost what they are: no task and no timer each, and nothing once they are gone."""

from __future__ import annotations

import asyncio
import random
import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from anabranch._aio import Timer
from anabranch.engines import InProcessEngine, Wake
from anabranch.engines._waiting_wakes import WaitingWakes
from anabranch.testing import ManualClock
from tests.suites.engine_samples import a_wake, working

SLEEPERS = 10_000
WEEK = 7 * 24 * 3600.0
BYTES_OF_A_WAKE = 1000
"""Far more than a sleeping wake takes, and far less than a task."""


class CountingClock(ManualClock):
    """A clock that knows how many timers there have been."""

    timers = 0

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        self.timers += 1
        return super().call_at(when, callback)


def sleepers(now: float) -> list[Wake]:
    """Return wakes that sleep for up to a week, each a time of its own, in no order."""
    wakes = [
        a_wake(f"c{number}", not_before=now + WEEK * number / SLEEPERS)
        for number in range(1, SLEEPERS + 1)
    ]
    random.Random(1).shuffle(wakes)
    return wakes


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


async def test_ten_thousand_sleepers_are_woken_in_order_of_time() -> None:
    clock = CountingClock()
    engine = InProcessEngine(clock)
    woken: list[tuple[Wake, float]] = []
    woke = asyncio.Event()

    async def advance(wake: Wake) -> None:
        woken.append((wake, clock.now()))
        woke.set()

    wakes = sleepers(clock.now())
    in_order = sorted(wakes, key=lambda wake: wake.not_before)
    async with working(engine, advance):
        tasks = len(asyncio.all_tasks())
        for wake in wakes:
            await engine.wake(wake)
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == tasks
        assert clock.timers <= 10
        for wake in in_order:
            woke.clear()
            clock.advance(wake.not_before - clock.now())
            await woke.wait()
    assert woken == [(wake, wake.not_before) for wake in in_order]
    assert (await engine.backlog()).waiting == 0


@pytest.mark.usefixtures("traced")
def test_a_sleeper_takes_little_memory() -> None:
    waiting = WaitingWakes()
    wakes = sleepers(0.0)
    before, _ = tracemalloc.get_traced_memory()
    for wake in wakes:
        waiting.add(wake)
    after, _ = tracemalloc.get_traced_memory()
    assert after - before < SLEEPERS * BYTES_OF_A_WAKE


@pytest.mark.usefixtures("traced")
def test_sleepers_that_come_earlier_leave_nothing_behind() -> None:
    waiting = WaitingWakes()
    waiting.add(a_wake("other", not_before=1.0))
    before, _ = tracemalloc.get_traced_memory()
    for number in range(SLEEPERS):
        waiting.add(a_wake("c", not_before=WEEK - number))
    after, _ = tracemalloc.get_traced_memory()
    assert len(waiting) == 2
    assert after - before < SLEEPERS * BYTES_OF_A_WAKE / 10

"""Sleeping wakes in this process need neither a task nor a timer each."""

import asyncio
import random
from collections.abc import Callable

from anabranch._aio import Timer
from anabranch.engines import InProcessEngine, Wake
from anabranch.testing import ManualClock
from tests.suites.engine_samples import Worker, a_wake, working

SLEEPERS = 10_000
WEEK = 7 * 24 * 3600.0


class CountingClock(ManualClock):
    """A clock that counts its timers."""

    timers = 0

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        self.timers += 1
        return super().call_at(when, callback)


def sleepers(now: float) -> list[Wake]:
    """Return wakes that sleep for up to a week, with different times in no order."""
    wakes = [
        a_wake(f"c{number}", not_before=now + WEEK * number / SLEEPERS)
        for number in range(1, SLEEPERS + 1)
    ]
    random.Random(1).shuffle(wakes)
    return wakes


async def test_ten_thousand_sleeping_wakes_come_in_order_of_time() -> None:
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


async def test_due_wakes_of_other_versions_are_not_read_to_find_the_next_wake() -> None:
    class CountedWake(Wake):
        """A wake that counts the reads of its version."""

        reads = 0

        def __getattribute__(self, name: str) -> object:
            CountedWake.reads += name == "version"
            return super().__getattribute__(name)

    engine, worker = InProcessEngine(), Worker()
    for number in range(SLEEPERS):
        await engine.wake(CountedWake(f"c{number}", "0", "a", version="other"))
    CountedWake.reads = 0
    async with working(engine, worker.advance):
        for number in range(10):
            await engine.wake(a_wake("mine", str(number)))
        await worker.until_turn("mine", "9", "the last of this version")
    assert CountedWake.reads == 0
    assert (await engine.backlog()).waiting == SLEEPERS

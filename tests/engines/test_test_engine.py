"""The engine for tests makes exactly the faults that its seed decides."""

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from anabranch.engines import Wake
from anabranch.errors import StoreError
from anabranch.testing import ManualClock, TestEngine
from tests.suites import engine_checks as suite
from tests.suites import engine_limit_checks as limits
from tests.suites.engine_checks import ENGINE_CHECKS, EngineCheck
from tests.suites.engine_samples import Worker, a_wake, working

AT_ONCE = frozenset(
    {
        suite.the_same_wake_is_one_wake,
        suite.a_call_is_advanced_again_if_it_is_woken_meanwhile,
        limits.a_worker_keeps_its_limit,
    }
)
"""Checks that fail if an advance may run twice."""

IN_ORDER = frozenset({suite.the_backlog_counts_pending_wakes})
"""Checks that fail if an advance may run twice, or a wake may come late."""


@pytest.mark.parametrize("check", ENGINE_CHECKS, ids=lambda check: check.__name__)
async def test_without_faults_the_test_engine_keeps_the_promises_of_the_port(
    check: EngineCheck,
) -> None:
    await check(partial(TestEngine, 1))


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 2))])
@pytest.mark.parametrize(
    "check",
    [check for check in ENGINE_CHECKS if check not in AT_ONCE | IN_ORDER],
    ids=lambda check: check.__name__,
)
async def test_with_all_faults_except_losses_the_test_engine_passes_the_other_checks(
    check: EngineCheck, seed: int
) -> None:
    await check(partial(TestEngine, seed, double=0.5, delay=0.5, longest=0.01))


async def begun(
    seed: int, *, drop: float = 0.0, double: float = 0.0, delay: float = 0.0
) -> tuple[TestEngine, list[Wake]]:
    """Give ten wakes to an engine with faults; return the engine and the advanced wakes."""
    clock, worker = ManualClock(), Worker()
    engine = TestEngine(seed, drop=drop, double=double, delay=delay, clock=clock)
    async with working(engine, worker.advance):
        for number in range(10):
            await engine.wake(a_wake(f"c{number}"))
        while (await engine.backlog()).waiting or (await engine.backlog()).running:
            await asyncio.sleep(0)
            clock.advance(1)
    return engine, worker.begun


async def test_a_seed_decides_the_faults() -> None:
    first, again, other = [await begun(seed, drop=0.3, double=0.3, delay=0.3) for seed in (1, 1, 2)]
    assert first[1] == again[1] != other[1]
    assert first[0].happened == again[0].happened


async def test_dropped_wakes_are_lost() -> None:
    engine, wakes = await begun(1, drop=0.5)
    assert len(wakes) == 10 - engine.happened["drop"]
    assert 0 < len(wakes) < 10


async def test_doubled_wakes_are_advanced_twice() -> None:
    engine, wakes = await begun(1, double=0.5)
    assert len(wakes) == 10 + engine.happened["double"]
    assert 10 < len(wakes) < 20


async def test_delayed_wakes_are_overtaken() -> None:
    _, wakes = await begun(1, delay=0.5)
    order = [wake.call for wake in wakes]
    assert order != sorted(order)
    assert sorted(order) == [f"c{number}" for number in range(10)]


async def test_a_doubled_wake_is_advanced_by_two_workers_at_the_same_time() -> None:
    first, second = Worker(is_open=False), Worker(is_open=False)
    engine = TestEngine(1, double=1)
    async with working(engine, first.advance), working(engine, second.advance):
        await engine.wake(a_wake("c"))
        await first.until_times("c", 1, "one worker")
        await second.until_times("c", 1, "the other worker")


async def test_a_stopped_engine_refuses_wakes() -> None:
    engine = TestEngine(1)
    engine.is_down = True
    with pytest.raises(StoreError, match="cannot be reached"):
        await engine.wake(a_wake("c"))


async def test_a_restored_engine_repeats_its_earlier_wakes() -> None:
    clock, worker = ManualClock(), Worker()
    engine = TestEngine(1, clock=clock)
    await engine.wake(a_wake("before"))
    async with working(engine, worker.advance):
        await worker.until_times("before", 1, "it is advanced")
    then = clock.now()
    clock.advance(3600)
    await engine.wake(a_wake("after"))
    await engine.restore(then)
    async with working(engine, worker.advance):
        await worker.until_times("before", 2, "what it had then comes again")
    assert worker.times("after") == 0


@pytest.mark.parametrize(
    ("make", "wrong"),
    [
        (partial(TestEngine, drop=1.1), "drop must be between 0 and 1, not 1.1"),
        (partial(TestEngine, double=-1), "double must be between 0 and 1, not -1"),
        (partial(TestEngine, longest=-1), "longest must not be negative, got -1"),
    ],
    ids=["drop", "double", "longest"],
)
def test_impossible_faults_are_refused(make: Callable[[int], TestEngine], wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        make(1)

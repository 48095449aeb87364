"""The suite of engines: one check for each promise of ``Engine``.

A check opens an engine that has nothing to do, raises ``AssertionError`` with the broken promise,
and waits for what must happen; how long that takes is the engine's affair.
"""

import time
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from tests.suites.engine_limit_checks import ENGINE_LIMIT_CHECKS
from tests.suites.engine_samples import ODD, TOOLS, OpenEngine, Worker, a_wake, waking, working
from tests.suites.expectations import expect, opened, refused, yes

EngineCheck: TypeAlias = Callable[[OpenEngine], Awaitable[None]]
"""Checks one promise; raises ``AssertionError`` if it is broken."""


async def a_wake_is_advanced(open_engine: OpenEngine) -> None:
    """Whether it comes before a worker does, or after."""
    worker = Worker()
    async with opened(open_engine) as engine:
        await engine.wake(a_wake("early"))
        async with working(engine, worker.advance):
            await worker.until_times("early", 1, "a wake before the worker")
            await engine.wake(a_wake("late"))
            await worker.until_times("late", 1, "a wake after the worker")


async def the_same_wake_is_one_wake(open_engine: OpenEngine) -> None:
    """It is advanced as often as it was given, at most."""
    worker, given = Worker(), 3
    async with opened(open_engine) as engine:
        for _ in range(given):
            await engine.wake(a_wake("c"))
        async with working(engine, worker.advance):
            await engine.wake(a_wake("other"))
            await worker.until_times("other", 1, "the last wake")
            await worker.until_times("c", 1, "the first wake")
            yes(worker.times("c") in range(1, given + 1), "the same wake is not multiplied")


async def a_call_is_advanced_again_if_it_is_woken_meanwhile(open_engine: OpenEngine) -> None:
    """Not at the same time in one worker, and after the last of the wakes."""
    worker = Worker(is_open=False)
    async with opened(open_engine) as engine, working(engine, worker.advance):
        await engine.wake(a_wake("c", "0"))
        await worker.until_times("c", 1, "the first wake")
        for turn in range(1, 5):
            await engine.wake(a_wake("c", str(turn)))
        await engine.wake(a_wake("other"))
        await worker.until_times("other", 1, "another call meanwhile")
        worker.gate.set()
        await worker.until_times("c", 2, "woken while it was advanced")
        await worker.until_running(0, "the advances end")
        expect(worker.most["call c"], 1, "one advance of a call at a time in a worker")


async def another_time_is_another_wake(open_engine: OpenEngine) -> None:
    """Of the same turn: also while the call is advanced for the one before it."""
    worker = Worker(is_open=False)
    async with opened(open_engine) as engine, working(engine, worker.advance):
        await engine.wake(a_wake("c"))
        await worker.until_times("c", 1, "the first wake")
        await engine.wake(a_wake("c", not_before=1.0))
        await engine.wake(a_wake("other"))
        await worker.until_times("other", 1, "another call meanwhile")
        worker.gate.set()
        await worker.until_times("c", 2, "woken at another time while it was advanced")
        await worker.until_running(0, "the advances end")
        await engine.wake(a_wake("c", not_before=2.0))
        await worker.until_times("c", 3, "woken at another time when it was advanced before")


async def an_advance_that_fails_comes_again(open_engine: OpenEngine) -> None:
    """The same wake, until it succeeds."""
    worker = Worker()
    worker.failing["c"] = [ValueError("once")]
    async with opened(open_engine) as engine, working(engine, worker.advance):
        await engine.wake(a_wake("c", "7"))
        await worker.until_times("c", 2, "it failed once")
        expect({wake.turn for wake in worker.begun}, {"7"}, "the same wake")


async def an_interrupted_advance_comes_again(open_engine: OpenEngine) -> None:
    """To another worker, when its own has ended; so does what came meanwhile."""
    first, second = Worker(is_open=False), Worker()
    async with opened(open_engine) as engine:
        async with working(engine, first.advance):
            await engine.wake(a_wake("c"))
            await engine.wake(a_wake("d"))
            await first.until_running(2, "both begin")
        async with working(engine, second.advance):
            await second.until_times("c", 1, "the first call comes again")
            await second.until_times("d", 1, "the second call comes again")


async def any_text_is_a_name(open_engine: OpenEngine) -> None:
    """Of a call, and of a wake."""
    worker = Worker()
    given = {(name, name) for name in ODD}
    async with opened(open_engine) as engine:
        for name in ODD:
            await engine.wake(a_wake(name, name))
        async with working(engine, worker.advance):
            await worker.until_calls(len(given), "each name")
        found = {(wake.call, wake.turn) for wake in worker.begun}
        expect(found, given, "the names")


async def a_call_that_was_advanced_is_woken_again(open_engine: OpenEngine) -> None:
    """By a wake of another name, whatever became of those before it."""
    worker = Worker()
    async with opened(open_engine) as engine, working(engine, worker.advance):
        for turn in ("0", "1"):
            await engine.wake(a_wake("c", turn))
            await worker.until_turn("c", turn, "woken when it was advanced before")
            await engine.wake(a_wake("c", turn))  # the same wake, which may be too late


async def a_call_that_was_not_woken_is_found(open_engine: OpenEngine) -> None:
    """The engine was down when the call began: the store has it, and periodic work wakes it."""
    worker = Worker()
    down = open_engine()
    await down.close()
    await refused(down.wake(a_wake("c")), "a wake while the engine is down")
    async with (
        opened(open_engine) as engine,
        working(engine, worker.advance),
        waking(engine, a_wake("c", "overdue")),
    ):
        await worker.until_times("c", 1, "found by periodic work")


async def a_restored_engine_goes_on(open_engine: OpenEngine) -> None:
    """It is given wakes that are long done; what it never had of the store, periodic work wakes.

    That stands for a loss: no check can take from an engine what it has.
    """
    worker = Worker()
    async with opened(open_engine) as lost, working(lost, worker.advance):
        for turn in ("0", "1", "2"):
            await lost.wake(a_wake("c", turn))
            await worker.until_turn("c", turn, "before the loss")
    async with opened(open_engine) as engine:
        for turn in ("0", "1"):
            await engine.wake(a_wake("c", turn))
        async with working(engine, worker.advance), waking(engine, a_wake("c", "3")):
            await worker.until_turn("c", "3", "what the restored engine has lost")


async def the_backlog_says_what_there_is_to_do(open_engine: OpenEngine) -> None:
    """Wakes before their time included."""
    worker = Worker(is_open=False)
    async with opened(open_engine) as engine:
        expect((await engine.backlog()).waiting, 0, "nothing to do")
        await engine.wake(a_wake("now"))
        await engine.wake(a_wake("later", not_before=time.time() + 3600))
        expect((await engine.backlog()).waiting, 2, "two wakes")
        async with working(engine, worker.advance):
            await worker.until_running(1, "one runs")
            backlog = await engine.backlog()
            expect((backlog.waiting, backlog.running), (1, 1), "one waits, and one runs")


async def a_closed_engine_refuses(open_engine: OpenEngine) -> None:
    """With a ``StoreError``; closing it again does nothing."""
    engine = open_engine()
    await engine.close()
    await engine.close()
    await refused(engine.wake(a_wake("c")), "a wake")
    await refused(engine.backlog(), "the backlog")
    await refused(engine.work(TOOLS, Worker().advance, 10), "work")


ENGINE_CHECKS: tuple[EngineCheck, ...] = (
    a_wake_is_advanced,
    the_same_wake_is_one_wake,
    a_call_is_advanced_again_if_it_is_woken_meanwhile,
    another_time_is_another_wake,
    an_advance_that_fails_comes_again,
    an_interrupted_advance_comes_again,
    any_text_is_a_name,
    a_call_that_was_advanced_is_woken_again,
    a_call_that_was_not_woken_is_found,
    a_restored_engine_goes_on,
    *ENGINE_LIMIT_CHECKS,
    the_backlog_says_what_there_is_to_do,
    a_closed_engine_refuses,
)
"""One check for each promise of ``Engine``."""

"""The suite for engines: one check for each promise of ``Engine``.

A check opens an idle engine, and raises ``AssertionError`` with the broken promise. A check waits
for an event however long the engine takes.
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
    """The wake may come before or after the worker."""
    worker = Worker()
    async with opened(open_engine) as engine:
        await engine.wake(a_wake("early"))
        async with working(engine, worker.advance):
            await worker.until_times("early", 1, "a wake before the worker")
            await engine.wake(a_wake("late"))
            await worker.until_times("late", 1, "a wake after the worker")


async def the_same_wake_is_one_wake(open_engine: OpenEngine) -> None:
    """The engine advances it at most as often as it was given."""
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
    """One worker never runs two advances of a call at once; another advance follows the last wake."""
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


async def a_wake_with_another_time_is_another_wake(open_engine: OpenEngine) -> None:
    """The same holds for another time of the same turn, even if the call is being advanced."""
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


async def a_failed_advance_is_retried(open_engine: OpenEngine) -> None:
    """The engine repeats the same wake until the advance succeeds."""
    worker = Worker()
    worker.failing["c"] = [ValueError("once")]
    async with opened(open_engine) as engine, working(engine, worker.advance):
        await engine.wake(a_wake("c", "7"))
        await worker.until_times("c", 2, "it failed once")
        expect({wake.turn for wake in worker.begun}, {"7"}, "the same wake")


async def an_interrupted_advance_is_retried(open_engine: OpenEngine) -> None:
    """If a worker ends, another worker gets its wakes, including wakes that arrived meanwhile."""
    first, second = Worker(is_open=False), Worker()
    async with opened(open_engine) as engine:
        async with working(engine, first.advance):
            await engine.wake(a_wake("c"))
            await engine.wake(a_wake("d"))
            await first.until_running(2, "both begin")
        async with working(engine, second.advance):
            await second.until_times("c", 1, "the first call comes again")
            await second.until_times("d", 1, "the second call comes again")


async def any_text_may_name_a_call_or_wake(open_engine: OpenEngine) -> None:
    """Calls and wakes may have any text as their name."""
    worker = Worker()
    given = {(name, name) for name in ODD}
    async with opened(open_engine) as engine:
        for name in ODD:
            await engine.wake(a_wake(name, name))
        async with working(engine, worker.advance):
            await worker.until_calls(len(given), "each name")
        found = {(wake.call, wake.turn) for wake in worker.begun}
        expect(found, given, "the names")


async def an_advanced_call_can_be_woken_again(open_engine: OpenEngine) -> None:
    """A wake of another name comes through, whatever happened to earlier wakes."""
    worker = Worker()
    async with opened(open_engine) as engine, working(engine, worker.advance):
        for turn in ("0", "1"):
            await engine.wake(a_wake("c", turn))
            await worker.until_turn("c", turn, "woken when it was advanced before")
            # A repetition of the same wake, which may come too late.
            await engine.wake(a_wake("c", turn))


async def periodic_work_finds_a_call_without_a_wake(open_engine: OpenEngine) -> None:
    """The engine was down when the call began. The store has the call, and periodic work wakes it."""
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


async def a_restored_engine_continues(open_engine: OpenEngine) -> None:
    """The engine gets old wakes again; periodic work wakes the calls that the engine does not know.

    The old wakes stand for a restored backup: no check can remove data from an engine.
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


async def the_backlog_counts_pending_wakes(open_engine: OpenEngine) -> None:
    """The backlog includes wakes before their time."""
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


async def a_closed_engine_refuses_operations(open_engine: OpenEngine) -> None:
    """Operations raise a ``StoreError``; closing the engine again has no effect."""
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
    a_wake_with_another_time_is_another_wake,
    a_failed_advance_is_retried,
    an_interrupted_advance_is_retried,
    any_text_may_name_a_call_or_wake,
    an_advanced_call_can_be_woken_again,
    periodic_work_finds_a_call_without_a_wake,
    a_restored_engine_continues,
    *ENGINE_LIMIT_CHECKS,
    the_backlog_counts_pending_wakes,
    a_closed_engine_refuses_operations,
)
"""One check for each promise of ``Engine``."""

"""Checks of engines: what each worker takes, in which order, and how many at a time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from anabranch.engines import WorkLimits
from tests.suites.engine_samples import OpenEngine, Worker, a_wake, working
from tests.suites.expectations import expect, opened


async def a_worker_takes_what_it_has(open_engine: OpenEngine) -> None:
    """Only its tools, and of those only the versions that it has."""
    old, new = Worker(), Worker()
    async with opened(open_engine) as engine:
        await engine.wake(a_wake("unknown", tool="missing"))
        await engine.wake(a_wake("old", version="1"))
        await engine.wake(a_wake("new", version="2"))
        await engine.wake(a_wake("any"))
        async with working(engine, new.advance, {"a": "2"}):
            await new.until_calls(2, "its version")
            expect(new.times("old") + new.times("unknown"), 0, "what it does not have")
        async with working(engine, old.advance, {"a": "1"}):
            await old.until_times("old", 1, "the version of the old worker")


async def a_limited_worker_takes_what_it_has(open_engine: OpenEngine) -> None:
    """Also of what another worker has left behind that had the version, and no room for it."""
    limits = WorkLimits(per_share=1)
    left, new, old = Worker(is_open=False), Worker(), Worker()
    async with opened(open_engine) as engine:
        await engine.wake(a_wake("any"))
        async with working(engine, left.advance, limits=limits):
            await left.until_times("any", 1, "as many as may run")
            await engine.wake(a_wake("old", version="1"))
            for other in ("p", "q", "r"):  # one after the other: meanwhile it looks for others
                await engine.wake(a_wake(other, version="1", share=other))
                await left.until_times(other, 1, "another share, for a version")
            expect(left.times("old"), 0, "more of a share than may run")
        async with working(engine, new.advance, {"a": "2"}, limits):
            await engine.wake(a_wake("new", version="2"))
            await new.until_calls(2, "its version")
            expect(new.times("old"), 0, "what it does not have")
        async with working(engine, old.advance, {"a": "1"}, limits):
            await old.until_times("old", 1, "the version of the old worker")


async def limits_hold(open_engine: OpenEngine) -> None:
    """Of a worker, and of a share."""
    limits = WorkLimits(concurrency=4, per_share=2)
    worker = Worker(is_open=False)
    async with opened(open_engine) as engine:
        for number in range(4):
            await engine.wake(a_wake(f"x{number}", share="x"))
        async with working(engine, worker.advance, limits=limits):
            await worker.until_running(2, "two of a share")
            for number in range(4):
                await engine.wake(a_wake(f"y{number}", share="y"))
                await engine.wake(a_wake(f"z{number}", share="z"))
            await worker.until_running(4, "as many as the worker may")
            worker.gate.set()
            await worker.until_calls(12, "all run")
        worker.ran_at_most(4, "all", "no more than the worker may")
        worker.ran_at_most(2, "share x", "no more of a share than may run")
        worker.ran_at_most(2, "share y", "no more of another share than may run")


async def limits_hold_for_all_versions_together(open_engine: OpenEngine) -> None:
    """A share has one limit, whatever version of the tool its wakes are for."""
    limits = WorkLimits(concurrency=12, per_share=2)
    worker = Worker(is_open=False)
    async with opened(open_engine) as engine:
        for number, version in enumerate(("", "1", "", "1")):
            await engine.wake(a_wake(f"x{number}", version=version, share="x"))
        async with working(engine, worker.advance, limits=limits):
            await worker.until_running(2, "two of a share")
            for other in ("p", "q", "r"):  # one after the other: meanwhile it looks for others
                await engine.wake(a_wake(other, version="1", share=other))
                await worker.until_times(other, 1, "another share, for a version")
            worker.gate.set()
            await worker.until_calls(7, "all run")
        worker.ran_at_most(2, "share x", "no more of a share than may run")


async def one_share_does_not_hold_up_another(open_engine: OpenEngine) -> None:
    """Though it came first, with more than can be done."""
    limits = WorkLimits(concurrency=2, per_share=1)
    worker = Worker(is_open=False)
    async with opened(open_engine) as engine:
        for number in range(20):
            await engine.wake(a_wake(f"much{number}", share="much"))
        await engine.wake(a_wake("little", share="little"))
        async with working(engine, worker.advance, limits=limits):
            await worker.until_times("little", 1, "the other share")
            worker.gate.set()
            await worker.until_calls(21, "all run")


async def a_call_that_waits_for_a_person_holds_no_limit(open_engine: OpenEngine) -> None:
    """It has no wake; many such calls leave the workers to the others."""
    worker = Worker()
    one = WorkLimits(concurrency=1)
    async with opened(open_engine) as engine, working(engine, worker.advance, limits=one):
        for number in range(20):
            await engine.wake(a_wake(f"silent{number}"))
        await engine.wake(a_wake("last"))
        await worker.until_times("last", 1, "the last call")


ENGINE_LIMIT_CHECKS: tuple[Callable[[OpenEngine], Awaitable[None]], ...] = (
    a_worker_takes_what_it_has,
    a_limited_worker_takes_what_it_has,
    limits_hold,
    limits_hold_for_all_versions_together,
    one_share_does_not_hold_up_another,
    a_call_that_waits_for_a_person_holds_no_limit,
)
"""All of them."""

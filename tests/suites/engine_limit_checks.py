"""Checks of engines: what each worker takes, in which order, and how many at a time."""

from collections.abc import Awaitable, Callable

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


async def a_limit_holds(open_engine: OpenEngine) -> None:
    """For all calls of a worker, whichever tools and versions they need."""
    worker = Worker(is_open=False)
    async with opened(open_engine) as engine:
        for number, version in enumerate(("", "1", "", "1", "1", "")):
            await engine.wake(a_wake(f"x{number}", tool="ab"[number % 2], version=version))
        async with working(engine, worker.advance, concurrency=2):
            await worker.until_running(2, "as many as the worker may")
            worker.gate.set()
            await worker.until_calls(6, "all run")
        worker.ran_at_most(2, "all", "no more than the worker may")


async def a_call_that_waits_for_a_person_holds_no_limit(open_engine: OpenEngine) -> None:
    """It has no wake; many such calls leave the workers to the others."""
    worker = Worker()
    async with opened(open_engine) as engine, working(engine, worker.advance, concurrency=1):
        for number in range(20):
            await engine.wake(a_wake(f"silent{number}"))
        await engine.wake(a_wake("last"))
        await worker.until_times("last", 1, "the last call")


ENGINE_LIMIT_CHECKS: tuple[Callable[[OpenEngine], Awaitable[None]], ...] = (
    a_worker_takes_what_it_has,
    a_limit_holds,
    a_call_that_waits_for_a_person_holds_no_limit,
)
"""All of them."""

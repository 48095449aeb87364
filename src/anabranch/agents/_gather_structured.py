"""Several things at once, of which none outlives the others' end.

Owns the one way in which an agent does things at the same time, and what comes out of it: values
in order, or one error instead of a group of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar, cast

import anyio

__all__ = ["together"]

T = TypeVar("T")


async def together(jobs: Iterable[Callable[[], Awaitable[T]]]) -> list[T]:
    """Do all jobs at once; return their values in order.

    Raises:
        Exception: what the first job to fail has raised; the others are cancelled.
    """
    values: dict[int, T] = {}

    async def do(number: int, job: Callable[[], Awaitable[T]]) -> None:
        values[number] = await job()

    try:
        async with anyio.create_task_group() as group:
            for number, job in enumerate(jobs):
                group.start_soon(do, number, job)
    except BaseExceptionGroup as errors:
        raise _first(errors) from errors
    return [values[number] for number in sorted(values)]


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    error = errors.exceptions[0]
    if isinstance(error, BaseExceptionGroup):
        return _first(cast("BaseExceptionGroup[BaseException]", error))
    return error

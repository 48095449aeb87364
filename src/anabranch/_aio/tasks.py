"""Runs operations concurrently until all, or the first, have ended; shields work from cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from inspect import iscoroutine
from typing import Any, Final, NoReturn, TypeVar, cast

import anyio

T = TypeVar("T")


async def all_of(operations: Iterable[Awaitable[Any]]) -> tuple[Any, ...]:
    """Run all operations concurrently; return their values in order, or raise the first error in order.

    All of them end before this function does. The first error in time would depend on who answers
    fastest, which differs between edges.
    """
    start = asyncio.get_running_loop().create_task
    tasks = [
        start(operation) if iscoroutine(operation) else asyncio.ensure_future(operation)
        for operation in operations
    ]
    if tasks:
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError:
            await cancel_and_wait(tasks)
            raise
    for task in tasks:
        if task.cancelled() or task.exception() is not None:
            for other in tasks:  # retrieve each exception, so that asyncio does not report it
                if not other.cancelled():
                    other.exception()
            return (task.result(),)  # raises
    return tuple(task.result() for task in tasks)


async def all_or_first_error(jobs: Iterable[Callable[[], Awaitable[T]]]) -> list[T]:
    """Run all jobs concurrently; return their values in order, or raise the first error in time."""

    async def run(job: Callable[[], Awaitable[T]]) -> T:
        return await job()

    try:
        async with asyncio.TaskGroup() as group:  # half the work of anyio's, for each job
            tasks = [group.create_task(run(job)) for job in jobs]
    except BaseExceptionGroup as errors:
        raise _first(errors) from errors
    return [task.result() for task in tasks]


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    error = errors.exceptions[0]
    if isinstance(error, BaseExceptionGroup):
        return _first(cast("BaseExceptionGroup[BaseException]", error))
    return error


async def none_of(operations: Iterable[Awaitable[Any]], refusal: Exception) -> NoReturn:
    """Close all operations before they start, and raise ``refusal``."""
    await cancel_and_wait([each for each in operations if isinstance(each, asyncio.Future)])
    for each in operations:
        if iscoroutine(each):
            each.close()
    raise refusal


async def first_of(operations: Sequence[Awaitable[T]]) -> tuple[int, asyncio.Future[T]]:
    """Run all operations concurrently until one has ended; cancel the others and wait for their end.

    Returns the winner's position and its future. If several end at the same time, the first in
    order wins.
    """
    tasks = [asyncio.ensure_future(operation) for operation in operations]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        await cancel_and_wait(tasks)
        raise
    winner = next(index for index, task in enumerate(tasks) if task in done)
    await cancel_and_wait([task for task in tasks if task is not tasks[winner]])
    return winner, tasks[winner]


async def cancel_and_wait(tasks: Sequence[asyncio.Future[Any]]) -> None:
    """Cancel ``tasks`` and return when all have ended, even if this task is cancelled meanwhile."""
    for task in tasks:
        task.cancel()
    live = [task for task in tasks if not task.done()]
    if live:
        await asyncio.wait(live)
    for task in tasks:
        if not task.cancelled():
            task.exception()


async def replay_race(operations: Sequence[Awaitable[T]], winner: int) -> T:
    """Run the operation that won the recorded race, and return its value.

    The others are started, and cancelled before they run, so that each task has the same name as in
    the recorded race.
    """
    tasks = [asyncio.ensure_future(operation) for operation in operations]
    for task in tasks:
        if task is not tasks[winner]:
            task.cancel()
    try:
        await asyncio.wait(tasks)
    except asyncio.CancelledError:
        await cancel_and_wait(tasks)
        raise
    return tasks[winner].result()


async def wait_shielded(future: asyncio.Future[Any]) -> asyncio.CancelledError | None:
    """Return when ``future`` is done, however often the caller is cancelled meanwhile.

    The result is the cancellation, if any; the caller raises it after looking at ``future``.
    """
    interrupted: asyncio.CancelledError | None = None
    with anyio.CancelScope(shield=True):  # an outer scope would cancel the wait again and again
        while not future.done():
            try:
                await asyncio.wait({future})
            except asyncio.CancelledError as error:
                interrupted = error
    return interrupted


async def run_shielded(work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` to completion, even if the caller is cancelled, and return its result."""
    task = asyncio.ensure_future(work)
    interrupted = await wait_shielded(task)
    if interrupted is not None:
        raise interrupted from None if task.cancelled() else task.exception()
    return task.result()


STOPPING: Final = "anabranch.stopping"
"""The key of the event in the state of a server's lifespan."""


def server_stops(scope: Mapping[str, Any]) -> asyncio.Event | None:
    """Return the event that the server of a request sets when it stops; ``None`` if it sets none."""
    state: Mapping[str, object] = scope.get("state") or {}
    found = state.get(STOPPING)
    return found if isinstance(found, asyncio.Event) else None

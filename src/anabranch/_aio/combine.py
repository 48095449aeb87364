"""Runs several operations concurrently, until all have ended, or the first has.

Both combinators are ordinary code on strands (the concurrent tasks of a call). Only the winner of a
race is recorded, because time decides it and a replay has other times.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from inspect import iscoroutine
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")


async def all_of(operations: Iterable[Awaitable[Any]]) -> tuple[Any, ...]:
    """Run all operations concurrently; return their values in order.

    All of them end before this function does, even if one fails. Then the error of the first one
    *in order* is raised. If the first error in time were raised, the error and the progress of the
    others would depend on who answers fastest, which differs between edges.
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


async def none_of(operations: Iterable[Awaitable[Any]], refusal: Exception) -> NoReturn:
    """Close all operations unstarted, and raise ``refusal``."""
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

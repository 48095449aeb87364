"""Waiting: the clock, periodic jobs, concurrent operations, work that no cancellation stops.

Also here are the ids of calls, warnings that are logged at most once a minute, and the mark of a
server that stops.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextvars import ContextVar
from inspect import iscoroutine
from typing import Any, Final, NoReturn, Protocol, TypeVar, cast

import anyio

from anabranch.errors import StoreError

T = TypeVar("T")


class Timer(Protocol):
    """A callback that :meth:`Clock.call_at` has scheduled."""

    def cancel(self) -> None:
        """Cancel the callback; do nothing if it has run."""


class Clock(Protocol):
    """A source of the wall-clock time, which is comparable between processes and machines."""

    def now(self) -> float:
        """Return the seconds since the epoch."""
        ...

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Call ``callback`` on the running event loop when ``now()`` reaches ``when``."""
        ...


async def pause(clock: Clock, seconds: float) -> None:
    """Return when ``seconds`` have passed on ``clock``."""
    over = asyncio.Event()
    timer = clock.call_at(clock.now() + seconds, over.set)
    try:
        await over.wait()
    finally:
        timer.cancel()


async def run_until(clock: Clock, when: float | None, work: Coroutine[Any, Any, None]) -> None:
    """Run ``work`` until it ends, or until ``clock`` reaches ``when``; then cancel it."""
    if when is None:
        return await work
    working = asyncio.ensure_future(work)
    waking = asyncio.ensure_future(pause(clock, when - clock.now()))
    try:
        await asyncio.wait({working, waking}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancel_and_wait([working, waking])
    return None if working.cancelled() else working.result()


class Ids(Protocol):
    """A source of ids and secrets for calls."""

    def call_id(self) -> str:
        """Return a new call id, which is unique and hard to guess."""
        ...

    def secret(self) -> str:
        """Return the seed of a call's randomness, which a client cannot guess."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        return time.time()

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        return asyncio.get_running_loop().call_later(max(0.0, when - time.time()), callback)


class SystemIds:
    """Random names, 72 bits each."""

    def call_id(self) -> str:
        return f"call_{secrets.token_urlsafe(9)}"

    def secret(self) -> str:
        """Return 96 random bits; short, because every state carries them."""
        return secrets.token_urlsafe(12)


MINUTE = 60.0


class ThrottledWarning:
    """A warning that other programs can cause often, logged at most once a minute."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._next = 0.0

    def warn(self, text: str, *values: object) -> None:
        """Log the warning, unless it was logged within the last minute."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + MINUTE
            self._logger.warning(text, *values)


logger: logging.Logger = logging.getLogger("anabranch.jobs")

_failing: ContextVar[frozenset[tuple[str, type]]] = ContextVar("failing", default=frozenset())
"""The jobs of this task that have failed since their last success, each with the type of its error."""


async def run_job(name: str, job: Callable[[], Awaitable[object]]) -> bool:
    """Run a job; return whether it succeeded, and log the first of consecutive errors of a kind."""
    known = _failing.get()
    failures = {each for each in known if each[0] == name}
    try:
        await job()
    except Exception as error:
        # After any error the job must run again, or its work would stay undone forever.
        _failing.set(known | {(name, type(error))})
        if (name, type(error)) in failures:
            return False
        if isinstance(error, StoreError):  # the message says it all
            logger.warning("job %r failed, and will run again: %s", name, error)
        else:
            logger.exception("job %r failed, and will run again", name)
        return False
    if failures:
        _failing.set(known - failures)
        logger.warning("job %r works again", name)
    return True


async def run_once(
    clock: Clock, seconds: float, name: str, job: Callable[[], Awaitable[object]]
) -> None:
    """Run a job as :func:`run_job` does, and again ``seconds`` after a failure, until it succeeds."""
    while not await run_job(name, job):
        await pause(clock, seconds)


async def run_every(
    clock: Clock, seconds: float, name: str, job: Callable[[], Awaitable[object]]
) -> NoReturn:
    """Run a job as :func:`run_job` does, with ``seconds`` between its runs, until cancelled."""
    while True:
        await run_job(name, job)
        await pause(clock, seconds)


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
    """Run ``work`` to completion, even if the caller is cancelled, and return its result.

    The cancellation is raised when ``work`` has ended, with the error of ``work`` as its cause.
    """
    task = asyncio.ensure_future(work)
    interrupted = await wait_shielded(task)
    if interrupted is not None:
        raise interrupted from None if task.cancelled() else task.exception()
    return task.result()


STOPPING: Final = "anabranch.stopping"
"""The key of the event in the state of a server's lifespan."""


def server_stops(scope: Mapping[str, Any]) -> asyncio.Event | None:
    """Return the event that the server of a request sets when it stops; ``None`` if it sets none.

    An endless response ends at this event. A stopping server has to cancel any other such response.
    """
    state: Mapping[str, object] = scope.get("state") or {}
    found = state.get(STOPPING)
    return found if isinstance(found, asyncio.Event) else None

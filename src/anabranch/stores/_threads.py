"""The threads in which a database works, and the way there and back.

Owns waiting for a thread from a coroutine, and batching. The threads are a database's own, not
those that ``anyio.to_thread`` shares out: those also run the synchronous steps of tool authors,
and forty slow steps must not keep a lease from being prolonged.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import anyio
import sqlalchemy as sa

__all__ = ["BATCH", "Batches", "Separately", "Transaction", "Work", "Workers", "outcome"]

T = TypeVar("T")
Work: TypeAlias = Callable[[sa.Connection], T]


BATCH = 100
"""How many pieces of work share one commit at most."""


async def outcome(future: Future[T]) -> T:
    """Wait for work in a thread, and return or raise what came of it.

    Whoever is cancelled meanwhile still waits until the work, once begun, is over: afterwards
    nothing is being written on their behalf.
    """
    loop = asyncio.get_running_loop()
    cancelled: asyncio.CancelledError | None = None
    # The shield keeps anyio, the loop keeps a plain Task.cancel() from ending the wait.
    with anyio.CancelScope(shield=True):
        while not future.done():
            over = loop.create_future()
            future.add_done_callback(partial(_wake, loop, over))
            try:
                await over  # asyncio.wait and wrap_future take longer than a small insert
            except asyncio.CancelledError as error:
                cancelled = error
                future.cancel()
    if cancelled is not None:
        raise cancelled
    return future.result()


def _wake(loop: asyncio.AbstractEventLoop, over: asyncio.Future[None], _: object) -> None:
    loop.call_soon_threadsafe(_finish, over)


def _finish(over: asyncio.Future[None]) -> None:
    if not over.done():  # whoever waited may have been cancelled, and wait anew
        over.set_result(None)


class Transaction(Protocol):
    """Opens a transaction that ends with the context."""

    def __call__(self, *, lasting: bool) -> AbstractContextManager[sa.Connection]:
        """If ``lasting``, its end is not reached before the disk has what it wrote."""
        ...


class Workers(Protocol):
    """Does work in threads."""

    def submit(self, work: Work[T], /, *, lasting: bool = True) -> Future[T]:
        """Put work in; cancel the future to take it out again, unless it has begun."""
        ...


class Separately:
    """Does each piece of work in a transaction of its own."""

    def __init__(self, threads: Executor, transaction: Transaction) -> None:
        self._threads = threads
        self._transaction = transaction

    def submit(self, work: Work[T], /, *, lasting: bool = True) -> Future[T]:
        """Put work in; cancel the future to take it out again, unless it has begun."""
        return self._threads.submit(self._do, work, lasting)

    def _do(self, work: Work[T], lasting: bool) -> T:  # noqa: FBT001 - an executor passes it on
        with self._transaction(lasting=lasting) as connection:
            return work(connection)


@dataclass(slots=True, eq=False)
class _Job(Generic[T]):
    work: Work[T]
    lasting: bool
    future: Future[T] = field(default_factory=Future[T])


class Batches:
    """Does, in one thread, whatever has come in meanwhile in one transaction.

    For a database with a single writer, whose every commit waits for the disk. Nobody hears of
    success before the commit. Work must bear being done again: if a piece of a batch fails, the
    batch is undone and each piece is done by itself.

    Args:
        thread: has one thread.
        transaction: how to open one; it lasts if any piece of its batch is to last.
    """

    def __init__(self, thread: Executor, transaction: Transaction) -> None:
        self._thread = thread
        self._transaction = transaction
        self._waiting: deque[_Job[Any]] = deque()

    def submit(self, work: Work[T], /, *, lasting: bool = True) -> Future[T]:
        """Put work in; cancel the future to take it out again, unless it has begun."""
        job = _Job(work, lasting)
        self._waiting.append(job)
        try:
            self._thread.submit(self._drain)
        except RuntimeError:  # the thread is gone; whoever is told so must not be served after all
            if job in self._waiting:
                self._waiting.remove(job)
            raise
        return job.future

    def _drain(self) -> None:
        jobs: list[_Job[Any]] = []
        while self._waiting and len(jobs) < BATCH:
            job = self._waiting.popleft()
            if job.future.set_running_or_notify_cancel():
                jobs.append(job)
        if jobs:
            self._do(jobs)

    def _do(self, jobs: list[_Job[Any]]) -> None:
        begun = False
        try:
            with self._transaction(lasting=any(job.lasting for job in jobs)) as connection:
                begun = True
                results = [job.work(connection) for job in jobs]
        except BaseException as error:  # noqa: BLE001  # it belongs to whoever waits
            if begun and len(jobs) > 1:
                for job in jobs:
                    self._do([job])
            else:
                for job in jobs:
                    job.future.set_exception(error)
        else:
            for job, result in zip(jobs, results, strict=True):
                job.future.set_result(result)

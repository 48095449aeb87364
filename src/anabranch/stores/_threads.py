"""The threads in which a database works: how work gets there, is batched, and is waited for.

The threads are a database's own, not those that ``anyio.to_thread`` shares: those also run the
synchronous steps of tool authors, and forty slow steps must not delay the renewal of a lease.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import sqlalchemy as sa

from anabranch._aio import run_shielded

T = TypeVar("T")
Work: TypeAlias = Callable[[sa.Connection], T]


BATCH = 100
"""How many pieces of work share one commit at most."""


async def outcome(future: Future[T]) -> T:
    """Wait for work in a thread, and return or raise what came of it.

    A caller that is cancelled takes its work back if it has not begun, and otherwise still waits
    until it has ended: nothing is written for a caller that has gone on to something else.
    """
    try:
        return await asyncio.wrap_future(future)  # cancels `future`, if it has not begun
    except asyncio.CancelledError:
        if not future.done():
            await run_shielded(_ended(future))
        raise


async def _ended(future: Future[Any]) -> None:
    """Wait until work has ended; what it returns or raises is of interest to no one."""
    await asyncio.gather(asyncio.wrap_future(future), return_exceptions=True)


class Transaction(Protocol):
    """Opens a transaction that ends with the context."""

    def __call__(self, *, lasting: bool) -> AbstractContextManager[sa.Connection]:
        """If ``lasting``, its commit waits for the disk."""
        ...


class Workers(Protocol):
    """Does work in threads."""

    def submit(self, work: Work[T], /, *, lasting: bool = True) -> Future[T]:
        """Put work in; cancel the future to take it out again, unless it has begun."""
        ...


class PerTransaction:
    """Does each piece of work in a transaction of its own."""

    def __init__(self, threads: Executor, transaction: Transaction) -> None:
        self._threads = threads
        self._transaction = transaction

    def submit(self, work: Work[T], /, *, lasting: bool = True) -> Future[T]:
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
    """Does, in one thread, all work that is waiting in one transaction.

    For a database with a single writer, whose every commit waits for the disk. Success is reported
    after the commit. Work must be repeatable: if a piece of a batch fails, the batch is rolled back
    and each piece is done in a transaction of its own.

    Args:
        thread: has one thread.
        transaction: how to open one; it is durable if any piece of its batch must be.
    """

    def __init__(self, thread: Executor, transaction: Transaction) -> None:
        self._thread = thread
        self._transaction = transaction
        self._waiting: deque[_Job[Any]] = deque()
        self._is_called = False

    def submit(self, work: Work[T], /, *, lasting: bool = True) -> Future[T]:
        job = _Job(work, lasting)
        self._waiting.append(job)
        if self._is_called:  # it has not looked yet
            return job.future
        self._is_called = True
        try:
            self._thread.submit(self._drain)
        except RuntimeError:  # the thread has ended; work that was refused must not be done later
            self._is_called = False
            if job in self._waiting:
                self._waiting.remove(job)
            raise
        return job.future

    def _drain(self) -> None:
        self._is_called = False
        while self._waiting:
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
        except BaseException as error:  # noqa: BLE001  # it is raised where the work is waited for
            if begun and len(jobs) > 1:
                for job in jobs:
                    self._do([job])
            else:
                for job in jobs:
                    job.future.set_exception(error)
        else:
            for job, result in zip(jobs, results, strict=True):
                job.future.set_result(result)

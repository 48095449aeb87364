"""The threads of a database: their connections, their work, and the wait for a result.

A database does not use the threads of ``anyio.to_thread``, which also run the steps of tool
authors: forty slow steps must not delay the renewal of a lease.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import sqlalchemy as sa

from anabranch._aio import run_shielded

TRUSTED = 1.0
"""Seconds after its last use for which a connection needs no test."""


@dataclass(slots=True)
class ConnectionHealth:
    """The time of the last failure, by ``time.monotonic()``: connections used before need a check."""

    last_failure: float = -math.inf


class ThreadConnections:
    """One connection for each thread; the pool of ``engine`` has as many connections as threads.

    Taking a connection from the pool and returning it costs more than a small insert.
    """

    def __init__(self, engine: sa.Engine, health: ConnectionHealth) -> None:
        self._engine = engine
        self._health = health
        self._is_autocommit = engine.get_execution_options().get("isolation_level") == "AUTOCOMMIT"
        self._is_remote = engine.dialect.name == "postgresql"  # a file needs no connection test
        self._own: dict[int, sa.Connection] = {}

    @contextmanager
    def transaction(self, *, lasting: bool) -> Generator[sa.Connection]:
        """Open a transaction; if ``lasting``, its commit waits for the disk."""
        try:
            connection = self._of_this_thread()
            if connection.get_execution_options().get("lasting", True) != lasting:
                connection.execution_options(lasting=lasting)
            if self._is_autocommit:
                yield connection
            else:
                with connection.begin():
                    yield connection
            if self._is_remote:
                connection.info["used"] = time.monotonic()
        except BaseException:
            self._health.last_failure = time.monotonic()
            # The pool rolls back a transaction that the driver left open, such as a failed commit.
            if (own := self._own.pop(threading.get_ident(), None)) is not None:
                own.close()
            raise

    def _of_this_thread(self) -> sa.Connection:
        """The pool tests a connection that was idle, or whose server has failed since its last use."""
        thread = threading.get_ident()
        connection = self._own.get(thread)
        if connection is not None and not self._is_trusted(connection):
            connection.info["used"] = -math.inf
            self._own.pop(thread).close()
            connection = None
        if connection is None:
            connection = self._own[thread] = self._engine.connect()
        return connection

    def _is_trusted(self, connection: sa.Connection) -> bool:
        info = connection.info
        return is_trusted(info) and info.get("used", math.inf) > self._health.last_failure

    def close(self) -> None:
        """Return all connections to the pool, after the threads have ended."""
        while self._own:
            self._own.popitem()[1].close()


def is_trusted(info: Mapping[Any, Any]) -> bool:
    """Return whether a connection needs no check: it is new, just used, or of a file."""
    used: float = info.get("used", math.inf)
    return time.monotonic() - used < TRUSTED


T = TypeVar("T")
Work: TypeAlias = Callable[[sa.Connection], T]


BATCH = 100
"""Maximum pieces of work that share one commit."""


async def outcome(future: Future[T]) -> T:
    """Wait for work in a thread, and return its result or raise its error.

    If the caller is cancelled, work that has not begun is withdrawn. Work that has begun is
    awaited, so that nothing is written after its caller has continued.
    """
    try:
        return await asyncio.wrap_future(future)  # cancels `future`, if it has not begun
    except asyncio.CancelledError:
        if not future.done():
            await run_shielded(_ended(future))
        raise


async def _ended(future: Future[Any]) -> None:
    await asyncio.gather(asyncio.wrap_future(future), return_exceptions=True)


class Transaction(Protocol):
    def __call__(self, *, lasting: bool) -> AbstractContextManager[sa.Connection]:
        """Open the transaction; if ``lasting``, its commit waits for the disk."""
        ...


class Workers(Protocol):
    def submit(self, work: Work[T], /, *, lasting: bool = True) -> Future[T]:
        """Queue work; cancelling the future withdraws the work unless it has begun."""
        ...


class PerTransaction:
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
    """Runs all waiting work in one transaction, in one ``thread``, for a database with a single writer.

    Work must be repeatable: if one piece of a batch fails, the batch is rolled back, and each piece
    runs in its own transaction. A transaction is lasting if any piece of its batch must be.
    """

    def __init__(self, thread: Executor, transaction: Transaction) -> None:
        self._thread = thread
        self._transaction = transaction
        self._waiting: deque[_Job[Any]] = deque()
        self._is_called = False

    def submit(self, work: Work[T], /, *, lasting: bool = True) -> Future[T]:
        job = _Job(work, lasting)
        self._waiting.append(job)
        if self._is_called:  # the thread has not looked at the queue yet
            return job.future
        self._is_called = True
        try:
            self._thread.submit(self._drain)
        except RuntimeError:  # the thread has ended; refused work must not run later
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
        except BaseException as error:  # noqa: BLE001  # the waiting caller raises it
            if begun and len(jobs) > 1:
                for job in jobs:
                    self._do([job])
            else:
                for job in jobs:
                    job.future.set_exception(error)
        else:
            for job, result in zip(jobs, results, strict=True):
                job.future.set_result(result)

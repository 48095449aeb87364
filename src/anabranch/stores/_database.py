"""One open database: its threads and transactions. The first use makes its tables.

SQLite: one thread writes, in batches that share a commit; other threads read meanwhile. Postgres: a
few threads, each with its own connection, run one function at a time.

A new store gets the tables of all table modules, and the stamp of their definition. No store is
migrated: a store with another stamp is refused.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy as sa

from anabranch.errors import StoreError
from anabranch.stores._engines import (
    READERS,
    REMEDY,
    SINGLE,
    SNAPSHOTS,
    WRITERS,
    Target,
    make_engine,
    make_file,
    translated,
)
from anabranch.stores._processes import ClosableProcesses, open_processes
from anabranch.stores._sql import Row, Statement, metadata
from anabranch.stores._threads import (
    Batches,
    ConnectionHealth,
    PerTransaction,
    ThreadConnections,
    Transaction,
    Work,
    Workers,
    outcome,
)

if TYPE_CHECKING:
    import psycopg  # an optional dependency

T = TypeVar("T")


class Database:
    """One open database. Safe to use from any thread and any event loop.

    A method raises :class:`StoreError` if the database fails; then nothing has changed.
    """

    def __init__(self, target: Target) -> None:
        self.is_postgresql: bool = target.kind == "postgresql"
        self.is_shared: bool = target.kind != "memory"
        self._target = target
        self.processes: ClosableProcesses = open_processes(target, self._connect, self._numbers)
        self._engine = engine = make_engine(target)
        self._prepared = False
        self._connections: list[ThreadConnections] = []
        self._health = ConnectionHealth()
        self._preparing = threading.Lock()
        self._threads: list[ThreadPoolExecutor] = []
        self._writers: Workers
        self._single_writers: Workers
        self._readers: Workers
        self._snapshots: Workers
        if self.is_postgresql:
            unwrapped = engine.execution_options(isolation_level="AUTOCOMMIT")
            snapshot = engine.execution_options(isolation_level="REPEATABLE READ")
            self._writers, self._single_writers, self._snapshots = (
                PerTransaction(self._new_threads(number), self._own_connections(each))
                for each, number in ((engine, WRITERS), (unwrapped, SINGLE), (snapshot, SNAPSHOTS))
            )
            self._readers = self._single_writers
        else:
            self._writers = Batches(self._new_threads(1), self._own_connections(engine))
            self._single_writers = self._writers
            self._readers = self._writers
            if target.kind == "sqlite":  # memory: has one connection only
                reading = engine.execution_options(reading=True)
                self._readers = PerTransaction(
                    self._new_threads(READERS), self._own_connections(reading)
                )
            self._snapshots = self._readers

    @property
    def dialect(self) -> sa.Dialect:
        return self._engine.dialect

    async def read(self, work: Work[T]) -> T:
        """Run ``work``, which reads. Each statement sees everything committed before that statement."""
        return await self._do(self._readers, work)

    async def read_at_once(self, work: Work[T]) -> T:
        """Run ``work``, which reads. All statements see the state at the first statement."""
        return await self._do(self._snapshots, work)

    async def write(self, work: Work[T], *, lasting: bool = True) -> T:
        """Run ``work`` in one transaction, and again after a rollback.

        Unless the transaction is ``lasting``, the commit does not wait for the disk. Others see its
        outcome immediately, but a crash of the
        machine, or of the Postgres server, may lose the outcome until the next lasting commit. A
        crash that loses a write loses all later writes as well.
        """
        return await self._do(self._writers, work, lasting=lasting)

    async def write_single(self, work: Work[T]) -> T:
        """Run ``work``, in which at most one statement changes rows; Postgres saves two round trips.

        On Postgres, each statement is a transaction: a second change would not be undone with the first.
        """
        return await self._do(self._single_writers, work)

    async def version(self) -> int:
        """Return a number that changes when another process writes to the SQLite file."""
        # SQLite's writer asks, because its own transactions do not change the number.
        [(version,)] = await self.write(
            lambda connection: _VERSION.rows(connection, {}), lasting=False
        )
        return int(version)

    @asynccontextmanager
    async def listening(
        self, channel: str
    ) -> AsyncGenerator[Callable[[float], AsyncIterator[str]]]:
        """Listen to a Postgres channel; yield a function that yields announcements for some seconds."""
        import psycopg  # noqa: PLC0415 - an optional dependency
        from psycopg.sql import SQL, Identifier  # noqa: PLC0415

        _, options = self.dialect.create_connect_args(self._target.url)
        with translated(self._target.label):
            connection = await psycopg.AsyncConnection.connect(**options, autocommit=True)
            # The connection's `async with` rolls back first, and does not close if cancelled then.
            try:
                await connection.execute(SQL("LISTEN {}").format(Identifier(channel)))

                async def heard(seconds: float) -> AsyncIterator[str]:
                    async for notice in connection.notifies(timeout=seconds):
                        yield notice.payload

                yield heard
            finally:
                await connection.close()

    async def close(self) -> None:
        """Finish all work and close threads and connections; a second call does nothing."""
        await asyncio.to_thread(self._shut_down)

    def _shut_down(self) -> None:
        for threads in self._threads:
            threads.shutdown()
        for connections in self._connections:
            connections.close()
        self._engine.dispose()
        self.processes.close()

    def _connect(self) -> psycopg.Connection[tuple[object, ...]]:
        """Open a Postgres connection that belongs to no thread."""
        import psycopg  # noqa: PLC0415 - an optional dependency

        _, options = self.dialect.create_connect_args(self._target.url)
        return psycopg.Connection.connect(**options, autocommit=True)

    async def _numbers(self, query: str) -> Sequence[int]:
        return await self.read(lambda connection: connection.scalars(sa.text(query)).all())

    async def _do(self, workers: Workers, work: Work[T], *, lasting: bool = True) -> T:
        try:
            future = workers.submit(work, lasting=lasting)
        except RuntimeError as error:  # the threads have ended
            raise StoreError(f"The store {self._target.label} has been closed.") from error
        return await outcome(future)

    def _new_threads(self, number: int) -> ThreadPoolExecutor:
        threads = ThreadPoolExecutor(number, "anabranch-store")
        self._threads.append(threads)
        return threads

    def _own_connections(self, engine: sa.Engine) -> Transaction:
        connections = ThreadConnections(engine, self._health)
        self._connections.append(connections)
        return partial(self._transaction, connections.transaction)

    @contextmanager
    def _transaction(self, opening: Transaction, *, lasting: bool) -> Generator[sa.Connection]:
        with translated(self._target.label):
            if not self._prepared:
                self._prepare()
            with opening(lasting=lasting) as connection:
                yield connection

    def _prepare(self) -> None:
        """Make the file and the tables if they are missing; concurrent callers wait for them."""
        with self._preparing:
            if self._prepared:
                return
            make_file(self._target)
            with self._engine.begin() as connection:
                make_tables(connection, self._target.label)
            self._prepared = True


class InDatabase:
    """A store in a database; ``closes`` says whether closing the store closes the database."""

    def __init__(self, database: Database, *, closes: bool = True) -> None:
        self.database: Database = database
        self._closes = closes

    async def close(self) -> None:
        if self._closes:
            await self.database.close()

    async def _rows(self, statement: Statement, **values: Any) -> Sequence[Row]:  # noqa: ANN401
        """Return the rows that a statement reads."""
        return await self.database.read(lambda connection: statement.rows(connection, values))

    async def _count(self, statement: Statement, **values: Any) -> int:  # noqa: ANN401
        """Run the only statement of a transaction; return the number of changed rows."""
        return await self.database.write_single(
            lambda connection: statement.count(connection, values)
        )


_VERSION = Statement(sa.text("PRAGMA data_version"))

STAMP = "7f0d7de0c81f3f40"
"""The digest of the definition, a constant: a process opens a store without loading all tables.

Another release of SQLAlchemy may render the same definition differently.
"""

_MODULES = ("_branches", "_call_tables", "_event_tables", "_memory_tables", "_tree_tables")
_SCHEMA = sa.Table("anabranch_schema", metadata, sa.Column[str]("stamp", sa.Text, primary_key=True))
_LOCK = 0x616E6162  # any number, the same in every release


@cache
def statements(driver: str) -> tuple[str, ...]:
    """Return the statements that make all tables of a new store; a driver is named as in a store URL."""
    for name in _MODULES:
        import_module(f"anabranch.stores.{name}")
    found: list[str] = []

    def add(statement: sa.ClauseElement, *_: object, **__: object) -> None:
        found.append(str(statement.compile(dialect=engine.dialect)).strip())

    engine = sa.create_mock_engine(f"{driver}://", add)
    metadata.create_all(engine, checkfirst=False)
    return tuple(found)


def make_tables(connection: sa.Connection, label: str) -> None:
    """Make the tables of a new store; concurrent processes wait here for each other."""
    if connection.dialect.name == "postgresql":  # a SQLite transaction locks the whole file anyway
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
    stamps = _stamps(connection)
    if stamps == [STAMP]:
        return
    if stamps:
        raise StoreError(
            f"The store {label} was made by another release: its tables have the stamp"
            f" {', '.join(stamps)!r}, this release makes {STAMP!r}. Use that release, or name another"
            " store; nothing was changed."
        )
    making = statements(connection.engine.url.drivername)
    if not metadata.tables.keys().isdisjoint(sa.inspect(connection).get_table_names()):
        raise StoreError(
            f"The store {label} has tables with the names of this package's, and no stamp of this"
            " release: the stamp was lost, or another release or program made the tables;"
            f" {REMEDY}. Nothing was changed."
        )
    for statement in making:
        connection.exec_driver_sql(statement)
    connection.execute(sa.insert(_SCHEMA).values(stamp=STAMP))


def _stamps(connection: sa.Connection) -> list[str]:
    if not sa.inspect(connection).has_table(_SCHEMA.name):
        return []
    return sorted(map(str, connection.scalars(sa.select(_SCHEMA.c.stamp))))

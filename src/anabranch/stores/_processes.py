"""The processes that share a database, by locks that die with them.

SQLite: each has a file beside the database, with a lock of SQLite's own on it, which the system releases
with the process. Postgres: each has an advisory lock, on a connection that does nothing else. A server
releases it with the connection, and may do so while the process lives; the process then connects again
at once, and others believe only in a lock that they have missed for longer than that takes.
"""

from __future__ import annotations

import asyncio
import glob
import logging
import math
import re
import secrets
import selectors
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import sqlalchemy as sa

from anabranch._durable.engine import Processes, UnknownProcesses
from anabranch.errors import StoreError
from anabranch.stores._database_faults import translated
from anabranch.stores._urls import Target

if TYPE_CHECKING:
    import psycopg  # an optional dependency

logger: logging.Logger = logging.getLogger("anabranch.stores")

MISSED, APART = 3, 0.5
"""In how many looks a lock of Postgres is free whose process is dead, and the least seconds between them."""

RECONNECT = 0.1
"""Seconds until a process that has lost its lock tries again to take it."""

REMEMBERED = 60.0
"""Seconds for which a lock that was missed counts as such."""

LOCKED_AT_MOST = 1.0
"""Seconds that a process waits at most for who looks at it, or for a connection that broke, to unlock."""

LOCKS = 0x616E6162
"""The first key of the advisory locks: any number, the same in every release."""

LIVING = sa.text(
    "SELECT objid FROM pg_locks WHERE locktype = 'advisory' AND classid = :locks AND objsubid = 2"
    " AND granted"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


class ClosableProcesses(Processes, Protocol):
    """The processes of an open database."""

    def close(self) -> None:
        """Be seen to live no longer; closing again does nothing."""
        ...


def open_processes(
    target: Target, connect: Callable[[], psycopg.Connection[tuple[object, ...]]], read: Read
) -> ClosableProcesses:
    """Return the processes that share a database; nothing is opened before this one enters.

    Args:
        target: the database.
        connect: opens a connection to Postgres.
        read: reads rows there.
    """
    if target.kind == "sqlite":
        return _FileLocks(Path(str(target.url.database)), target.label)
    if target.kind == "postgresql":
        return _AdvisoryLocks(target.label, connect, read)
    return _Alone()


class Read(Protocol):
    """Reads rows of a database."""

    async def __call__(self, statement: sa.TextClause, /, **values: object) -> Collection[int]:
        """Return the first column."""
        ...


class _Alone(UnknownProcesses):
    """A database in memory, which no other process has."""

    def close(self) -> None:
        """See the protocol."""


class _FileLocks:
    """Locks on files beside the database, ``NAME-process-…``.

    They are opened by SQLite alone: where one process closed a file in another way, the system would
    release the locks that this process has on it.
    """

    def __init__(self, database: Path, label: str) -> None:
        self.name: str = secrets.token_hex(6)
        self._beside = database.absolute()
        self._label = label
        self._entering = threading.Lock()
        self._is_closed = False
        self._held: sqlite3.Connection | None = None

    async def enter(self) -> None:
        """See :meth:`Processes.enter`."""
        if self._held is None:
            await asyncio.to_thread(self._enter)

    def _enter(self) -> None:
        with self._entering:
            if self._held is not None:
                return
            _check_open(self._label, is_closed=self._is_closed)
            try:
                self._held = self._made()
            except sqlite3.Error as error:
                raise StoreError(
                    f"No file can be made and locked beside {self._label}: {error}. Name a file in a"
                    " directory that can be written to, and open no store before a fork."
                ) from error
        prefix = self._file("").name
        for left in self._beside.parent.glob(f"{glob.escape(prefix)}*"):
            self._is_dead(left.name.removeprefix(prefix))

    def _made(self) -> sqlite3.Connection:
        """Make this process's file and lock it; again, if another has removed it in between."""
        file = self._file(self.name)
        while True:
            held = _locked(file, "rwc", LOCKED_AT_MOST)
            if file.exists():  # from now on no other can lock it, nor remove it
                return held
            held.close()

    async def dead(self, names: Collection[str]) -> Collection[str]:
        """See :meth:`Processes.dead`."""
        return await asyncio.to_thread(lambda: [*filter(self._is_dead, names)]) if names else ()

    def _is_dead(self, name: str) -> bool:
        if name == self.name or re.fullmatch("[0-9a-f]{12}", name) is None:
            return False
        file = self._file(name)
        try:
            lock = _locked(file, "rw", 0.0)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_CANTOPEN and not file.exists():
                return True  # it has closed the database, or another has seen that it is dead
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                logger.warning("%s: whether a process lives is not known: %s", self._label, error)
            return False
        # While it is locked: who is about to enter locks it next, and sees that it is not there.
        with suppress(OSError):
            file.unlink()
        lock.close()
        return True

    def close(self) -> None:
        """See the protocol."""
        with self._entering:
            self._is_closed = True
            held, self._held = self._held, None
            if held is not None:
                held.close()
                with suppress(OSError):
                    self._file(self.name).unlink()

    def _file(self, name: str) -> Path:
        return self._beside.with_name(f"{self._beside.name}-process-{name}")


def _locked(file: Path, mode: str, timeout: float) -> sqlite3.Connection:
    """Open and lock a file."""
    where = f"{file.as_uri()}?mode={mode}"
    connection = sqlite3.connect(
        where, uri=True, timeout=timeout, isolation_level=None, check_same_thread=False
    )
    try:
        connection.execute("PRAGMA journal_mode = OFF")  # or another file would be made beside it
        connection.execute("BEGIN EXCLUSIVE")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _check_open(label: str, *, is_closed: bool) -> None:
    if is_closed:
        raise StoreError(f"The store {label} has been closed.")


class _AdvisoryLocks:
    """Advisory locks of Postgres; a thread notices when the connection breaks that holds this one's."""

    def __init__(
        self, label: str, connect: Callable[[], psycopg.Connection[tuple[object, ...]]], read: Read
    ) -> None:
        self._number = secrets.randbits(31)
        self.name: str = f"{self._number:08x}"
        self._label = label
        self._connect = connect
        self._read = read
        self._entering = threading.Lock()
        self._is_closed = False
        self._holding: threading.Thread | None = None
        self._ends, self._end = socket.socketpair()
        self._missed: dict[str, tuple[int, float]] = {}

    async def enter(self) -> None:
        """See :meth:`Processes.enter`."""
        if not self._is_held:
            await asyncio.to_thread(self._enter)

    @property
    def _is_held(self) -> bool:
        return self._holding is not None and self._holding.is_alive()

    def _enter(self) -> None:
        with self._entering:
            if not self._is_held:
                _check_open(self._label, is_closed=self._is_closed)
                with translated(self._label):
                    connection = self._locked()
                self._holding = threading.Thread(
                    target=self._hold, args=(connection,), name="anabranch-process", daemon=True
                )
                self._holding.start()

    def _locked(self) -> psycopg.Connection[tuple[object, ...]]:
        connection = self._connect()
        try:
            # Where the server has not noticed yet that an older connection broke, it waits for that;
            # not for long, since the store may be closed meanwhile.
            connection.execute(f"SET lock_timeout = {int(LOCKED_AT_MOST * 1000)}".encode())
            connection.execute("SELECT pg_advisory_lock(%s, %s)", (LOCKS, self._number))
        except BaseException:
            connection.close()
            raise
        return connection

    def _hold(self, held: psycopg.Connection[tuple[object, ...]]) -> None:
        """Hold the lock until the end, on another connection whenever one breaks."""
        import psycopg  # noqa: PLC0415 - an optional dependency

        connection: psycopg.Connection[tuple[object, ...]] | None = held
        # Not `select`: it takes no file above the first thousand, and each stream has one.
        with selectors.DefaultSelector() as readable:
            readable.register(self._ends, selectors.EVENT_READ)
            while connection is not None:
                # Nothing is asked on it: it can be read when it is closed, or the server says why it
                # will be.
                file = connection.fileno()
                readable.register(file, selectors.EVENT_READ)
                ready = [key.fileobj for key, _ in readable.select()]
                readable.unregister(file)
                if self._ends in ready:
                    connection.close()
                    return
                try:
                    connection.execute("SELECT 1")
                except psycopg.Error:
                    connection.close()
                    logger.warning("%s: a connection broke; it is made again", self._label)
                    connection = self._locked_again(readable)

    def _locked_again(
        self, readable: selectors.BaseSelector
    ) -> psycopg.Connection[tuple[object, ...]] | None:
        """Return another connection that has the lock; none at the end."""
        import psycopg  # noqa: PLC0415 - an optional dependency

        while not readable.select(RECONNECT):
            with suppress(psycopg.Error):
                return self._locked()
        return None

    async def dead(self, names: Collection[str]) -> Collection[str]:
        """See :meth:`Processes.dead`."""
        others = [each for each in names if re.fullmatch("[0-9a-f]{8}", each) and each != self.name]
        if not others:
            return ()
        living = {f"{each:08x}" for each in await self._read(LIVING, locks=LOCKS)}
        now = time.monotonic()
        if self._is_held and self.name not in living:
            self._missed.clear()  # the others may have lost theirs as this one did
            return ()
        self._missed = {
            each: seen
            for each, seen in self._missed.items()
            if each not in living and now - seen[1] < REMEMBERED
        }
        for each in others:
            times, last = self._missed.get(each, (0, -math.inf))
            if each not in living and now - last >= APART:
                self._missed[each] = times + 1, now
        return [each for each in others if self._missed.get(each, (0, 0.0))[0] >= MISSED]

    def close(self) -> None:
        """See the protocol."""
        with self._entering:
            self._is_closed = True
            holding, self._holding = self._holding, None
        if holding is not None:
            self._end.send(b"x")
            holding.join()
        self._end.close()
        self._ends.close()

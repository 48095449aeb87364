"""The processes that share a database. Each holds a lock, which the system releases if it dies.

A Postgres server may release such a lock while the process lives, if the connection breaks. The
process then connects again immediately, and others take it for dead only when its lock is missing
for longer.
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
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

from anabranch._durable import Processes, UnknownProcesses
from anabranch.errors import StoreError
from anabranch.stores._engines import Target, translated

if TYPE_CHECKING:
    import psycopg  # an optional dependency

logger: logging.Logger = logging.getLogger("anabranch.stores")

MISSED, APART = 3, 0.5
"""Looks at a free Postgres lock until its process counts as dead, and minimum seconds between looks."""

RECONNECT = 0.1
"""Seconds until a process that has lost its lock tries to take the lock again."""

REMEMBERED = 60.0
"""Seconds for which a look at a free lock counts."""

LOCKED_AT_MOST = 1.0
"""Maximum seconds to wait until an observer, or a broken connection, releases a lock."""

LOCKS = 0x616E6162
"""The first key of the advisory locks: any number, the same in every release."""

LIVING = (
    "SELECT objid FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2 AND granted"  # noqa: S608
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    f" AND classid = {LOCKS}"
)
"""Finds the numbers of the living processes."""

Read: TypeAlias = Callable[[str], Awaitable[Collection[int]]]
"""Returns the first column of the rows that a query finds."""


class ClosableProcesses(Processes, Protocol):
    def close(self) -> None:
        """Release this process's lock, so that others see its end; a second call does nothing."""
        ...


def open_processes(
    target: Target, connect: Callable[[], psycopg.Connection[tuple[object, ...]]], read: Read
) -> ClosableProcesses:
    """Return the processes that share a database; open no file or connection before the first use."""
    if target.kind == "sqlite":
        return _FileLocks(Path(str(target.url.database)), target.label)
    if target.kind == "postgresql":
        return _AdvisoryLocks(target.label, connect, read)
    return _Alone()


class _Alone(UnknownProcesses):
    """A database in memory, which no other process shares."""

    def close(self) -> None:
        """See the protocol."""


class _FileLocks:
    """Locks on files next to the database, ``NAME-process-…``.

    Only SQLite opens these files. If the process opened and closed one in another way, the system
    would release the locks that this process has on the file.
    """

    def __init__(self, database: Path, label: str) -> None:
        self.name: str = secrets.token_hex(6)
        self._beside = database.absolute()
        self._label = label
        self._entering = threading.Lock()
        self._is_closed = False
        self._held: sqlite3.Connection | None = None

    async def enter(self) -> None:
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
                    f"No file can be made and locked next to {self._label}: {error}. Name a file in a"
                    " directory that can be written to, and open no store before a fork."
                ) from error
        prefix = self._file("").name
        for left in self._beside.parent.glob(f"{glob.escape(prefix)}*"):
            self._is_dead(left.name.removeprefix(prefix))

    def _made(self) -> sqlite3.Connection:
        """Make and lock this process's file; make it again if another process removes it meanwhile."""
        file = self._file(self.name)
        while True:
            held = _locked(file, "rwc", LOCKED_AT_MOST)
            if file.exists():  # now no other process can lock or remove it
                return held
            held.close()

    async def dead(self, names: Collection[str]) -> Collection[str]:
        return await asyncio.to_thread(lambda: [*filter(self._is_dead, names)]) if names else ()

    def _is_dead(self, name: str) -> bool:
        if name == self.name or re.fullmatch("[0-9a-f]{12}", name) is None:
            return False
        file = self._file(name)
        try:
            lock = _locked(file, "rw", 0.0)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_CANTOPEN and not file.exists():
                return True  # the process has closed, or another has removed its file
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                logger.warning("%s: cannot tell whether a process is alive: %s", self._label, error)
            return False
        # Removed while locked: a process that is about to enter locks it next and sees it gone.
        with suppress(OSError):
            file.unlink()
        lock.close()
        return True

    def close(self) -> None:
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
    where = f"{file.as_uri()}?mode={mode}"
    connection = sqlite3.connect(
        where, uri=True, timeout=timeout, isolation_level=None, check_same_thread=False
    )
    try:
        connection.execute("PRAGMA journal_mode = OFF")  # a journal would be a second file
        connection.execute("BEGIN EXCLUSIVE")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _check_open(label: str, *, is_closed: bool) -> None:
    if is_closed:
        raise StoreError(f"The store {label} has been closed.")


class _AdvisoryLocks:
    """Advisory locks of Postgres; a thread notices when the connection of this process breaks."""

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
            # The server may still hold the lock for an older, broken connection. Wait briefly,
            # since the store may be closed meanwhile.
            connection.execute(f"SET lock_timeout = {int(LOCKED_AT_MOST * 1000)}".encode())
            connection.execute("SELECT pg_advisory_lock(%s, %s)", (LOCKS, self._number))
        except BaseException:
            connection.close()
            raise
        return connection

    def _hold(self, held: psycopg.Connection[tuple[object, ...]]) -> None:
        """Hold the lock until the end, on a new connection whenever one breaks."""
        import psycopg  # noqa: PLC0415 - an optional dependency

        connection: psycopg.Connection[tuple[object, ...]] | None = held
        # Not `select`: it takes no file number above 1023, and each stream has one.
        with selectors.DefaultSelector() as readable:
            readable.register(self._ends, selectors.EVENT_READ)
            while connection is not None:
                # No statement runs on this connection: it becomes readable when the server closes
                # it, or says why it will.
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
                    logger.warning("%s: a connection broke; reconnecting", self._label)
                    connection = self._locked_again(readable)

    def _locked_again(
        self, readable: selectors.BaseSelector
    ) -> psycopg.Connection[tuple[object, ...]] | None:
        """Return a new connection that holds the lock, or ``None`` at the end."""
        import psycopg  # noqa: PLC0415 - an optional dependency

        while not readable.select(RECONNECT):
            with suppress(psycopg.Error):
                return self._locked()
        return None

    async def dead(self, names: Collection[str]) -> Collection[str]:
        others = [each for each in names if re.fullmatch("[0-9a-f]{8}", each) and each != self.name]
        if not others:
            return ()
        living = {f"{each:08x}" for each in await self._read(LIVING)}
        now = time.monotonic()
        if self._is_held and self.name not in living:
            self._missed.clear()  # the others may have lost their locks as this process did
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
        with self._entering:
            self._is_closed = True
            holding, self._holding = self._holding, None
        if holding is not None:
            self._end.send(b"x")
            holding.join()
        self._end.close()
        self._ends.close()

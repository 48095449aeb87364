"""What a URL asks for, and the engine that talks to it.

Owns the forms of store URLs, their options, and the settings of every connection. It never opens
a connection itself.
"""

from __future__ import annotations

import math
import os
import sqlite3
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import sqlalchemy as sa
from sqlalchemy import event, exc
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.pool import ConnectionPoolEntry, StaticPool

from anabranch.errors import StoreError
from anabranch.stores._statements import driver_of

if TYPE_CHECKING:
    import psycopg  # an optional dependency

__all__ = [
    "CONNECTIONS",
    "READERS",
    "TRUSTED",
    "Kind",
    "Target",
    "make_engine",
    "make_file",
    "read_url",
    "switch_to_wal",
]

Kind = Literal["memory", "sqlite", "postgresql"]

CONNECTIONS = 8
"""Connections to Postgres that one process holds at most."""

READERS = 4
"""Threads that read from a SQLite file while one writes."""

TRUSTED = 1.0
"""Seconds for which a connection to Postgres that was fine needs no new look."""

_FORMS = "sqlite:///path, postgresql://user@host/name or memory:"
_SCHEMES: Mapping[str, Kind] = {
    "sqlite": "sqlite",
    "postgres": "postgresql",
    "postgresql": "postgresql",
    "postgresql+psycopg": "postgresql",
}
_WAL_KEPT = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Target:
    """A store's address, understood.

    Attributes:
        kind: which of the databases.
        url: for SQLAlchemy.
        label: the URL as it may be shown: without password and options.
        timeout: seconds to wait for a lock, or for the server.
        synchronous: SQLite's durability: ``full`` or ``normal``.
    """

    kind: Kind
    url: sa.URL
    label: str
    timeout: float = 10.0
    synchronous: str = "full"


def read_url(text: str) -> Target:
    """Understand a store URL.

    Raises:
        StoreError: it is not one, or the driver for it is not installed.
    """
    if text == "memory:":
        return Target("memory", sa.make_url("sqlite://"), text)
    try:
        url = sa.make_url(text)
    except (exc.ArgumentError, ValueError):
        # The text is not repeated: a mistyped URL may hold a password.
        raise StoreError(f"The store URL cannot be understood; use {_FORMS}.") from None
    kind = _SCHEMES.get(url.drivername)
    if kind is None:
        raise StoreError(f"There is no store for {url.drivername!r} URLs; use {_FORMS}.")
    label = url.set(query={}).render_as_string(hide_password=True)
    options = dict(url.query)
    timeout = _seconds(options.pop("timeout", "10"))
    if kind == "sqlite":
        return _read_sqlite(url, label, timeout, options)
    _require_psycopg()
    options.setdefault("connect_timeout", str(max(2, math.ceil(timeout))))  # libpq's least is 2
    options.setdefault("application_name", "anabranch")
    url = url.set(drivername="postgresql+psycopg", query=options)
    return Target(kind, url, label, timeout)


def _read_sqlite(url: sa.URL, label: str, timeout: float, options: dict[str, Any]) -> Target:
    synchronous = str(options.pop("synchronous", "full")).lower()
    if synchronous not in {"full", "normal"}:
        raise StoreError(f"synchronous={synchronous} in {label} is neither full nor normal.")
    if options:
        raise StoreError(f"{label} has no option {min(options)!r}; it has timeout and synchronous.")
    if url.host is not None or url.database in {None, "", ":memory:"}:
        raise StoreError(
            f"{label} names no file: write three slashes before the path"
            " (four if it is absolute), or memory: for a store without a file."
        )
    path = Path(str(url.database)).expanduser()
    return Target("sqlite", url.set(database=str(path), query={}), label, timeout, synchronous)


def _seconds(text: str | tuple[str, ...]) -> float:
    try:
        seconds = float(str(text))  # an option that is given twice is a tuple
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise StoreError(f"timeout={text} in the store URL is not a number of seconds.")
    return seconds


def _require_psycopg() -> None:
    try:
        import_module("psycopg")
    except ImportError as error:
        raise StoreError(
            'A postgresql:// store needs a driver: install "anabranch[postgres]".'
        ) from error


def make_file(target: Target) -> None:
    """Make sure that the file of a SQLite target is there; it holds conversations: owner only."""
    if target.kind != "sqlite":
        return
    path = Path(str(target.url.database))
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        raise StoreError(
            f"The store {target.label} cannot be opened: {error.strerror}."
            " Name a file in a directory that can be written to."
        ) from error


def make_engine(target: Target) -> sa.Engine:
    """Build the engine.

    Two execution options of a connection are its own: with ``reading``, it takes no lock on
    SQLite; with ``lasting=False``, its commits do not wait for the disk.
    """
    if target.kind == "postgresql":
        return _postgresql(target)
    connect: dict[str, Any] = {"check_same_thread": False, "timeout": target.timeout}
    if target.kind == "memory":
        engine = sa.create_engine(target.url, connect_args=connect, poolclass=StaticPool)
    else:
        engine = sa.create_engine(
            target.url, connect_args=connect, pool_size=1 + READERS, max_overflow=0
        )
    pragmas = (
        f"PRAGMA journal_size_limit = {_WAL_KEPT}",
        f"PRAGMA synchronous = {target.synchronous}",
        "PRAGMA foreign_keys = ON",
    )

    def set_up(connection: sqlite3.Connection, record: ConnectionPoolEntry) -> None:
        record.info["synchronous"] = target.synchronous
        connection.isolation_level = None  # the driver's own idea of when to begin: never
        switch_to_wal(connection)
        for pragma in pragmas:
            connection.execute(pragma)

    def begin(connection: sa.Connection) -> None:
        options = connection.get_execution_options()
        reading = options.get("reading", False)
        # A transaction that turns from reading to writing fails when another has written since;
        # one that begins as a writer only waits for its turn.
        driver = driver_of(connection)  # a statement less for SQLAlchemy
        wanted = target.synchronous if options.get("lasting", True) else "normal"
        if connection.info["synchronous"] != wanted and not reading:
            driver.execute(f"PRAGMA synchronous = {wanted}")
            connection.info["synchronous"] = wanted
        driver.execute("BEGIN" if reading else "BEGIN IMMEDIATE")

    event.listen(engine, "connect", set_up)
    event.listen(engine, "begin", begin)
    return engine


def switch_to_wal(connection: sqlite3.Connection) -> None:
    """Let readers and a writer work at the same time; does nothing where that is so already."""
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                raise
            # Alone among statements this pragma does not wait while another process holds the
            # file (which may be making the same switch). So wait with one that does.
            connection.execute("BEGIN EXCLUSIVE")
            connection.execute("ROLLBACK")
        else:
            return


def _postgresql(target: Target) -> sa.Engine:
    engine = sa.create_engine(
        target.url,
        isolation_level="READ COMMITTED",
        pool_size=CONNECTIONS,
        max_overflow=0,
    )
    settings = (
        f"SET lock_timeout = {int(target.timeout * 1000)};"
        " SET default_transaction_isolation = 'read committed'"
    ).encode()  # what the driver takes for SQL that is not a literal

    def set_up(connection: psycopg.Connection, _record: object) -> None:
        connection.execute(settings)
        connection.commit()

    def check(connection: DBAPIConnection, record: ConnectionPoolEntry, _proxy: object) -> None:
        # A server that was restarted meanwhile has forgotten this connection. Asking before each
        # use, as pool_pre_ping does, would cost a round trip each time.
        if time.monotonic() - record.info.get("used", math.inf) < TRUSTED:
            return
        try:
            engine.dialect.do_ping(connection)
        except engine.dialect.loaded_dbapi.Error as error:
            raise exc.DisconnectionError from error  # the pool opens another one

    def begin(connection: sa.Connection) -> None:
        if not connection.get_execution_options().get("lasting", True):
            connection.exec_driver_sql("SET LOCAL synchronous_commit TO off")

    def mark(_connection: object, record: ConnectionPoolEntry) -> None:
        record.info["used"] = time.monotonic()

    event.listen(engine, "connect", set_up)
    event.listen(engine, "begin", begin)
    event.listen(engine, "checkout", check)
    event.listen(engine, "checkin", mark)
    return engine

"""The databases of a store: URLs, the settings of connections, and drivers' errors as one sentence.

A sentence of a :class:`StoreError` has no data of callers.
"""

from __future__ import annotations

import math
import os
import sqlite3
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import sqlalchemy as sa
from sqlalchemy import event, exc
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.pool import ConnectionPoolEntry, StaticPool

from anabranch.errors import StoreError, needs_extra
from anabranch.stores._threads import is_trusted

if TYPE_CHECKING:
    import psycopg  # an optional dependency

Kind = Literal["memory", "sqlite", "postgresql"]

_FORMS = "sqlite:///path, postgresql://user@host/name or memory:"
_SCHEMES: Mapping[str, Kind] = {
    "sqlite": "sqlite",
    "postgres": "postgresql",
    "postgresql": "postgresql",
    "postgresql+psycopg": "postgresql",
}
_CUT_OFF = {
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
"""libpq options that break a connection after half a minute without a sign of the server.

Without them, a process waits a quarter of an hour after the network was cut.
"""


@dataclass(frozen=True, slots=True)
class Target:
    """A store's address; ``label`` is the URL without password and options.

    The ``timeout`` is in seconds; ``synchronous`` is SQLite's durability: ``full`` or ``normal``.
    """

    kind: Kind
    url: sa.URL
    label: str
    timeout: float = 10.0
    synchronous: str = "full"


def read_url(text: str) -> Target:
    """Parse a store URL; raise ``StoreError`` if it is invalid, or if its driver is not installed."""
    if text == "memory:":
        return Target("memory", sa.make_url("sqlite://"), text)
    try:
        url = sa.make_url(text)
    except (exc.ArgumentError, ValueError):
        # The text is not repeated: a mistyped URL may hold a password.
        raise StoreError(f"The store URL is invalid; use {_FORMS}.") from None
    kind = _SCHEMES.get(url.drivername)
    if kind is None:
        raise StoreError(f"There is no store for {url.drivername!r} URLs; use {_FORMS}.")
    label = url.set(query={}).render_as_string(hide_password=True)
    if kind == "sqlite" and url.host is None:  # with the path as it is, for example with spaces
        label = f"sqlite:///{url.database or ''}"
    options = dict(url.query)
    timeout = _seconds(options.pop("timeout", "10"))
    if kind == "sqlite":
        return _read_sqlite(url, label, timeout, options)
    with needs_extra("postgres", "A postgresql:// store", StoreError):
        import_module("psycopg")
    options.setdefault("connect_timeout", str(max(2, math.ceil(timeout))))  # libpq's least is 2
    options.setdefault("application_name", "anabranch")
    for option, value in _CUT_OFF.items():
        options.setdefault(option, value)
    url = url.set(drivername="postgresql+psycopg", query=options)
    return Target(kind, url, label, timeout)


def _read_sqlite(url: sa.URL, label: str, timeout: float, options: dict[str, Any]) -> Target:
    synchronous = str(options.pop("synchronous", "full")).lower()
    if synchronous not in {"full", "normal"}:
        raise StoreError(f"synchronous={synchronous} in {label} is neither full nor normal.")
    if options:
        raise StoreError(f"{label} has no option {min(options)!r}; it has timeout and synchronous.")
    if url.host is None and url.database == ":memory:":
        raise StoreError(
            "The store URL sqlite:///:memory: names no file. Write memory: for a store without one."
        )
    if url.host is not None or url.database in {None, ""}:
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


WRITERS, SINGLE, SNAPSHOTS = 3, 4, 1
"""Threads that use Postgres: for transactions, for single statements, and for snapshots."""

CONNECTIONS = WRITERS + SINGLE + SNAPSHOTS
"""Maximum Postgres connections of one process, not counting connections that listen."""

READERS = 4
"""Threads that read from a SQLite file while one writes."""

IDLE_AT_MOST = 30
"""Seconds until Postgres ends a dead process's transaction, which would lock rows for hours."""

STATEMENT_AT_MOST = 60
"""Seconds after which Postgres cancels a statement; every statement here has bounded work."""

_WAL_SIZE_LIMIT = 64 * 1024 * 1024


def make_file(target: Target) -> None:
    """Make the file of a SQLite target if it is missing, readable by its owner alone."""
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
    """Build the engine, whose connections take the options ``reading`` (no lock) and ``lasting``."""
    if target.kind == "postgresql":
        return _postgresql(target)
    connect: dict[str, Any] = {"check_same_thread": False, "timeout": target.timeout}
    if target.kind == "memory":
        pool: dict[str, Any] = {"poolclass": StaticPool}
    else:
        pool = {"pool_size": 1 + READERS, "max_overflow": 0}
    engine = sa.create_engine(
        target.url, connect_args=connect, paramstyle="named", hide_parameters=True, **pool
    )
    pragmas = (
        f"PRAGMA journal_size_limit = {_WAL_SIZE_LIMIT}",
        f"PRAGMA synchronous = {target.synchronous}",
        "PRAGMA foreign_keys = ON",
    )

    def set_up(connection: sqlite3.Connection, record: ConnectionPoolEntry) -> None:
        record.info["synchronous"] = target.synchronous
        connection.isolation_level = None  # the driver begins no transaction by itself
        switch_to_wal(connection)
        for pragma in pragmas:
            connection.execute(pragma)

    def begin(connection: sa.Connection) -> None:
        options = connection.get_execution_options()
        reading = options.get("reading", False)
        # A transaction that reads first and then writes fails if another has written since.
        # A transaction that begins as a writer waits for its turn.
        driver: Any = connection.connection.driver_connection  # costs less than exec_driver_sql
        wanted = target.synchronous if options.get("lasting", True) else "normal"
        if connection.info["synchronous"] != wanted and not reading:
            driver.execute(f"PRAGMA synchronous = {wanted}")
            connection.info["synchronous"] = wanted
        driver.execute("BEGIN" if reading else "BEGIN IMMEDIATE")

    event.listen(engine, "connect", set_up)
    event.listen(engine, "begin", begin)
    return engine


def switch_to_wal(connection: sqlite3.Connection) -> None:
    """Set the file to WAL mode, in which readers work while a writer writes."""
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                raise
            # This pragma alone does not wait while another process holds the file, perhaps for
            # the same switch. So wait with a statement that does.
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
        hide_parameters=True,
    )
    settings = (
        f"SET lock_timeout = {int(target.timeout * 1000)};"
        f" SET idle_in_transaction_session_timeout = {IDLE_AT_MOST * 1000};"
        f" SET statement_timeout = {int(STATEMENT_AT_MOST * 1000)};"
        " SET default_transaction_isolation = 'read committed'"
    ).encode()  # the driver takes SQL that is not a literal as bytes

    def set_up(connection: psycopg.Connection, _record: object) -> None:
        connection.execute(settings)
        connection.commit()

    def check(connection: DBAPIConnection, record: ConnectionPoolEntry, _proxy: object) -> None:
        # A restarted server has closed this connection. A ping before each use, as with
        # pool_pre_ping, would cost a round trip each time.
        if is_trusted(record.info):
            return
        try:
            engine.dialect.do_ping(connection)
        except engine.dialect.loaded_dbapi.Error as error:
            raise exc.DisconnectionError from error  # the pool opens another one

    def begin(connection: sa.Connection) -> None:
        if not connection.get_execution_options().get("lasting", True):
            connection.exec_driver_sql("SET LOCAL synchronous_commit TO off")

    event.listen(engine, "connect", set_up)
    event.listen(engine, "begin", begin)
    event.listen(engine, "checkout", check)
    return engine


REMEDY = "restore it from a copy, or name another store"
_MISFIT = (
    "has tables that do not fit its stamp: a program has changed or made them, or a restore was"
    f" incomplete; {REMEDY}"
)
_DELETED = "no longer has the record that this write belongs to; read the store again"
_SQLITE = {
    "SQLITE_ERROR": _MISFIT,  # a statement names a table or a column that is missing
    "SQLITE_CONSTRAINT": _MISFIT,
    "SQLITE_CONSTRAINT_FOREIGNKEY": _DELETED,
    "SQLITE_MISMATCH": _MISFIT,
    "SQLITE_BUSY": "is locked by another program; end that program, or raise ?timeout=",
    "SQLITE_LOCKED": "is locked by another program; end that program, or raise ?timeout=",
    "SQLITE_NOTADB": "is not a SQLite database, and is unchanged; name another file",
    "SQLITE_CORRUPT": "is damaged, and is unchanged; restore it from a copy, or name another file",
    "SQLITE_CANTOPEN": "cannot be opened; name a file in a directory that can be written to",
    "SQLITE_READONLY": "cannot be written to; check the permissions of the file and its directory",
    "SQLITE_FULL": "has no space left on its disk; free some space",
    "SQLITE_IOERR": "cannot be read or written by the system; check its disk",
}
_POSTGRES = {
    "55P03": "is locked by another program; end that program, or raise ?timeout=",
    "40P01": "gave up on a deadlock; try again",
    "42501": "does not let this user make or use its tables; grant the rights",
    "3F000": "has no schema that this user may use; grant the rights, or set search_path",
    "23503": _DELETED,
    "57014": "cancelled a statement after a minute; try again when the server is less busy",
    "25006": "cannot be written to; name the primary server",
}
_POSTGRES_CLASSES = {
    "23": _MISFIT,
    "42": _MISFIT,
    "08": "broke the connection; try again",
    "53": "has run out of connections, memory or disk; make room",
    "57": "is shutting down; try again",
}


@contextmanager
def translated(label: str, what: str = "store") -> Generator[None]:
    """Raise :class:`StoreError`, which names the store ``label``, in place of the driver's errors."""
    named = f"The {what} {label}"
    try:
        yield
    except exc.DBAPIError as error:
        raise _sentence(named, error.orig or error) from error
    except exc.SQLAlchemyError as error:
        raise StoreError(f"{named} failed: {type(error).__name__}.") from error
    except Exception as error:
        # While a connection is set up, the driver's errors arrive bare.
        if type(error).__module__.partition(".")[0] not in {"sqlite3", "psycopg"}:
            raise
        raise _sentence(named, error) from error


def _sentence(named: str, error: BaseException) -> StoreError:
    if (reason := _reason(error)) is None:  # no server has answered with a number
        said = " ".join(str(error).split()) or type(error).__name__
        reason = f"cannot be reached: {said.rstrip('.')}"
    return StoreError(f"{named} {reason}.")


def _reason(error: BaseException) -> str | None:
    """Return the meaning of the error number that the database gave; ``None`` without a number."""
    name = getattr(error, "sqlite_errorname", None)
    if name is not None:  # extended codes begin with the plain one: SQLITE_IOERR_WRITE
        plain = "_".join(name.split("_")[:2])
        return _SQLITE.get(name) or _SQLITE.get(plain, f"failed with {name}")
    state = getattr(error, "sqlstate", None)
    if state is None:
        return None
    return _POSTGRES.get(state) or _POSTGRES_CLASSES.get(state[:2], f"failed with error {state}")

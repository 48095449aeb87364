"""The parts of all tables and statements: column types, indexes, and statements compiled once.

The statements that run most often or return most rows go to the driver unchanged: SQLAlchemy's
cache and conversion cost more than the database does. Values and rows have the driver's types: a
text of type ``Opaque`` is bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.types import TypeDecorator, TypeEngine

Row: TypeAlias = Sequence[Any]
"""A row as the driver returns it."""

metadata: sa.MetaData = sa.MetaData()
"""The registry of all tables; each table module adds its tables."""


class Opaque(TypeDecorator[str]):
    """Any text, as bytes: Postgres takes no NUL character as text, and no database a lone surrogate."""

    impl: TypeEngine[Any] | type[TypeEngine[Any]] = sa.LargeBinary
    cache_ok: bool | None = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> bytes | None:  # noqa: ARG002
        return optional_bytes(value)

    def process_result_value(self, value: bytes | None, dialect: sa.Dialect) -> str | None:  # noqa: ARG002
        return optional_text(value)


def to_bytes(text: str) -> bytes:
    """Return ``text`` as :class:`Opaque` stores it, for statements that bypass the type."""
    return text.encode("utf-8", "surrogatepass")


def to_text(value: bytes) -> str:
    return value.decode("utf-8", "surrogatepass")


def optional_bytes(text: str | None) -> bytes | None:
    return None if text is None else to_bytes(text)


def optional_text(value: bytes | None) -> str | None:
    return None if value is None else to_text(value)


def numbered(name: str) -> sa.Column[int]:
    """Return the primary key column ``name``, a growing number that the database generates."""
    number = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    return sa.Column[int](name, number, sa.Identity(), primary_key=True)


def partial_index(name: str, *columns: str, where: sa.TextClause) -> sa.Index:
    """Return an index of the rows that meet ``where``, for queries that repeat ``where``."""
    return sa.Index(name, *columns, sqlite_where=where, postgresql_where=where)


class Statement:
    """One statement with named parameters, compiled at its first use with a dialect."""

    def __init__(
        self, statement: sa.ClauseElement | Callable[[sa.Dialect], sa.ClauseElement]
    ) -> None:
        self.statement: sa.ClauseElement | Callable[[sa.Dialect], sa.ClauseElement] = statement
        self._compiled: dict[str, tuple[str, dict[str, Any]]] = {}

    def _of(self, dialect: sa.Dialect) -> tuple[str, dict[str, Any]]:
        if dialect.name not in self._compiled:
            given = self.statement
            statement = given if isinstance(given, sa.ClauseElement) else given(dialect)
            compiled = statement.compile(dialect=dialect)
            constants = {
                name: value for name, value in (compiled.params or {}).items() if value is not None
            }
            self._compiled[dialect.name] = str(compiled), constants
        return self._compiled[dialect.name]

    def rows(self, connection: sa.Connection, values: Mapping[str, Any]) -> Sequence[Row]:
        text, constants = self._of(connection.dialect)
        with _cursor(connection) as cursor:
            cursor.execute(text, {**constants, **values})
            return cursor.fetchall()

    def count(self, connection: sa.Connection, *rows: Mapping[str, Any]) -> int:
        """Run the statement once for each of ``rows``; return the number of changed rows."""
        text, constants = self._of(connection.dialect)
        values = [{**constants, **row} for row in rows]
        with _cursor(connection) as cursor:
            if len(values) == 1:
                cursor.execute(text, values[0])
            else:
                cursor.executemany(text, values)
            return cursor.rowcount


AT_ONCE = 64
"""Maximum rows that a :class:`RowsStatement` takes in one execution; a power of two."""


class RowsStatement:
    """A statement over any number of rows, which sends many rows with each execution.

    SQLite's driver releases the interpreter's lock at each execution, also within ``executemany``,
    and then waits for its turn. Next to a busy event loop, that takes far longer than the work.
    ``make`` returns the statement for a number of rows; its parameters are their values, in order.
    """

    def __init__(self, make: Callable[[int], sa.ClauseElement]) -> None:
        self._make = make
        self._made: dict[tuple[str, int], str] = {}

    def run(self, connection: sa.Connection, given: Sequence[Row]) -> None:
        start = 0
        with _cursor(connection) as cursor:
            while start < len(given):
                # Powers of two, so that there are few statements, and the driver caches them.
                size = min(AT_ONCE, 1 << (len(given) - start).bit_length() - 1)
                values = [value for row in given[start : start + size] for value in row]
                cursor.execute(self._of(connection.dialect, size), values)
                start += size

    def _of(self, given: sa.Dialect, size: int) -> str:
        key = given.name, size
        if key not in self._made:
            make_dialect: Any = type(given)
            dialect = make_dialect(paramstyle="format" if given.name == "postgresql" else "qmark")
            self._made[key] = str(self._make(size).compile(dialect=dialect))
        return self._made[key]


@contextmanager
def _cursor(connection: sa.Connection) -> Generator[DBAPICursor]:
    """Open a cursor of the driver; a SQLAlchemy result costs more than most statements."""
    pooled, dbapi = connection.connection, connection.dialect.loaded_dbapi
    cursor = pooled.cursor()
    try:
        yield cursor
    except dbapi.Error as error:
        if connection.dialect.is_disconnect(error, pooled.dbapi_connection, cursor):
            connection.invalidate(error)
        is_refused = isinstance(error, dbapi.IntegrityError)
        raised = exc.IntegrityError if is_refused else exc.DBAPIError
        raise raised(None, None, error) from error
    finally:
        cursor.close()


def insert_of(dialect: sa.Dialect) -> Callable[[sa.Table], Any]:
    # A process needs one dialect, and each import takes long.
    if dialect.name == "postgresql":
        from sqlalchemy.dialects import postgresql  # noqa: PLC0415

        return postgresql.insert
    from sqlalchemy.dialects import sqlite  # noqa: PLC0415

    return sqlite.insert


def insert_first(table: sa.Table) -> Statement:
    """Return the statement that inserts a row unless the table has its key already."""
    given = {
        column.name: sa.bindparam(column.name, type_=column.type)
        for column in table.c
        if column.identity is None
    }

    def make(dialect: sa.Dialect) -> sa.ClauseElement:
        first: sa.Insert = insert_of(dialect)(table).inline().values(given).on_conflict_do_nothing()
        return first

    return Statement(make)

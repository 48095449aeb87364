"""Statements that are compiled once and then sent to the driver unchanged.

These are the statements that run most often or return most rows. For them, SQLAlchemy's compilation
cache and its conversion of values cost more than the database does. Values and rows have the
driver's types: a text of type ``Opaque`` is bytes. Cursors are the driver's; errors, connections
and transactions are SQLAlchemy's.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.engine.interfaces import DBAPICursor

Row: TypeAlias = Sequence[Any]
"""A row as the driver returns it."""


class Statement:
    """One compiled statement.

    Args:
        statement: has named parameters.
        dialect: the dialect of the engine that runs the statement, with named parameters
            (``paramstyle``).
    """

    def __init__(self, statement: sa.ClauseElement, dialect: sa.Dialect) -> None:
        compiled = statement.compile(dialect=dialect)
        self._text = str(compiled)
        # Values that belong to the statement, such as the number of a LIMIT.
        self._constants: dict[str, Any] = {
            name: value for name, value in (compiled.params or {}).items() if value is not None
        }

    def rows(self, connection: sa.Connection, values: Mapping[str, Any]) -> Sequence[Row]:
        """Return all rows that a query finds.

        Raises:
            sqlalchemy.exc.DBAPIError: if the driver raises an error.
        """
        with _cursor(connection) as cursor:
            cursor.execute(self._text, {**self._constants, **values})
            return cursor.fetchall()

    def count(self, connection: sa.Connection, *rows: Mapping[str, Any]) -> int:
        """Run the statement once for each of ``rows``; return the number of changed rows.

        Raises:
            sqlalchemy.exc.DBAPIError: if the driver raises an error.
        """
        values = [{**self._constants, **row} for row in rows]
        with _cursor(connection) as cursor:
            if len(values) == 1:
                cursor.execute(self._text, values[0])
            else:
                cursor.executemany(self._text, values)
            return cursor.rowcount


AT_ONCE = 64
"""Maximum rows that a :class:`RowsStatement` takes in one execution; a power of two."""


class RowsStatement:
    """A SQLite statement over any number of rows, of which one execution takes many.

    The driver releases the interpreter's lock at each execution, also within ``executemany``, and
    then waits for its turn. Next to a busy event loop, that takes far longer than the work.

    Args:
        make: returns the statement for a number of rows; its parameters are the values of the rows,
            in order.
    """

    def __init__(self, make: Callable[[int], sa.ClauseElement]) -> None:
        self._make = make
        self._made: dict[int, str] = {}

    def rows(self, connection: sa.Connection, given: Sequence[Row]) -> list[Row]:
        """Run the statement for all rows of ``given``; return the rows that it returns, in no order.

        Raises:
            sqlalchemy.exc.DBAPIError: if the driver raises an error.
        """
        found: list[Row] = []
        start = 0
        with _cursor(connection) as cursor:
            while start < len(given):
                # Powers of two, so that there are few statements, and the driver caches them.
                size = min(AT_ONCE, 1 << (len(given) - start).bit_length() - 1)
                values = [value for row in given[start : start + size] for value in row]
                cursor.execute(self._of(size), values)
                found += cursor.fetchall()
                start += size
        return found

    def _of(self, size: int) -> str:
        if size not in self._made:
            from sqlalchemy.dialects import sqlite  # noqa: PLC0415 - as in insert_of()

            dialect = sqlite.dialect(paramstyle="qmark")
            self._made[size] = str(self._make(size).compile(dialect=dialect))
        return self._made[size]


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


def insert_of(*, is_postgresql: bool) -> Callable[[sa.Table], Any]:
    """Return the ``insert`` of the database's dialect."""
    # A process needs one dialect, and each import takes long.
    if is_postgresql:
        from sqlalchemy.dialects import postgresql  # noqa: PLC0415

        return postgresql.insert
    from sqlalchemy.dialects import sqlite  # noqa: PLC0415

    return sqlite.insert

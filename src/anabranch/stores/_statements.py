"""Statements that are compiled once and then sent to the driver as they are.

They are what is executed most often, or returns most rows: for these, SQLAlchemy's compilation cache
and its conversion of each value cost more than the database does. Values go in, and rows come out, as
the driver has them: texts of type ``Opaque`` as bytes. Cursors are the driver's; errors,
connections and transactions are SQLAlchemy's.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.engine.interfaces import DBAPICursor

Row: TypeAlias = Sequence[Any]
"""What a statement returns, as the driver does."""


class Statement:
    """One statement.

    Args:
        statement: with named parameters.
        dialect: of the engine that executes it; its parameters are named, too (``paramstyle``).
    """

    def __init__(self, statement: sa.ClauseElement, dialect: sa.Dialect) -> None:
        compiled = statement.compile(dialect=dialect)
        self._text = str(compiled)
        # Values that are part of the statement, such as the number of a LIMIT.
        self._constants: dict[str, Any] = {
            name: value for name, value in (compiled.params or {}).items() if value is not None
        }

    def rows(self, connection: sa.Connection, values: Mapping[str, Any]) -> Sequence[Row]:
        """Return all rows that a query finds.

        Raises:
            sqlalchemy.exc.DBAPIError: if the driver raised an error.
        """
        with _cursor(connection) as cursor:
            cursor.execute(self._text, {**self._constants, **values})
            return cursor.fetchall()

    def count(self, connection: sa.Connection, *rows: Mapping[str, Any]) -> int:
        """Execute once for each of ``rows``; return how many rows of the table that has changed.

        Raises:
            sqlalchemy.exc.DBAPIError: as :meth:`rows`.
        """
        values = [{**self._constants, **row} for row in rows]
        with _cursor(connection) as cursor:
            if len(values) == 1:
                cursor.execute(self._text, values[0])
            else:
                cursor.executemany(self._text, values)
            return cursor.rowcount


AT_ONCE = 64
"""How many rows a :class:`RowsStatement` takes in one execution at most; a power of two."""


class RowsStatement:
    """A statement of SQLite over any number of rows, which takes many of them in one execution.

    The driver lets other threads run at each execution, those of ``executemany`` as well, and then
    waits for its turn: beside a busy event loop, that takes far longer than the work.

    Args:
        make: returns the statement for so many rows; its parameters are the values of the rows, in
            their order.
    """

    def __init__(self, make: Callable[[int], sa.ClauseElement]) -> None:
        self._make = make
        self._made: dict[int, str] = {}

    def rows(self, connection: sa.Connection, given: Sequence[Row]) -> list[Row]:
        """Execute it for all of ``given``; return the rows that it returns, in no order.

        Raises:
            sqlalchemy.exc.DBAPIError: as :meth:`Statement.rows`.
        """
        found: list[Row] = []
        start = 0
        with _cursor(connection) as cursor:
            while start < len(given):
                # Powers of two, so that there are few statements, which the driver has prepared.
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
    """Open a cursor of the driver; a result of SQLAlchemy's costs more than most statements."""
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
    """Return the database's own ``insert``."""
    # A process needs one dialect, and each takes long to import.
    if is_postgresql:
        from sqlalchemy.dialects import postgresql  # noqa: PLC0415

        return postgresql.insert
    from sqlalchemy.dialects import sqlite  # noqa: PLC0415

    return sqlite.insert

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

__all__ = ["Row", "Statement", "insert_of"]

Row: TypeAlias = Sequence[Any]
"""What a statement returns, as the driver does."""


class Statement:
    """One statement.

    Args:
        statement: with named parameters.
        dialect: of the engine that executes it; its parameters are named, too (``paramstyle``).
    """

    def __init__(self, statement: sa.ClauseElement, dialect: sa.Dialect) -> None:
        self._dbapi = dialect.loaded_dbapi
        compiled = statement.compile(dialect=dialect)
        self._text = str(compiled)
        # Values that are part of the statement, such as the number of a LIMIT.
        self._constants: dict[str, Any] = {
            name: value for name, value in (compiled.params or {}).items() if value is not None
        }

    def rows(self, connection: sa.Connection, values: Mapping[str, Any]) -> Sequence[Row]:
        """Return all rows that a query finds.

        Raises:
            sqlalchemy.exc.DBAPIError: the driver raised an error.
        """
        with self._cursor(connection) as cursor:
            cursor.execute(self._text, {**self._constants, **values})
            return cursor.fetchall()

    def count(self, connection: sa.Connection, *rows: Mapping[str, Any]) -> int:
        """Execute once for each of ``rows``; return how many rows of the table that has changed.

        Raises:
            sqlalchemy.exc.DBAPIError: as :meth:`rows`.
        """
        values = [{**self._constants, **row} for row in rows]
        with self._cursor(connection) as cursor:
            if len(values) == 1:
                cursor.execute(self._text, values[0])
            else:
                cursor.executemany(self._text, values)
            return cursor.rowcount

    @contextmanager
    def _cursor(self, connection: sa.Connection) -> Generator[DBAPICursor]:
        """Open a cursor of the driver; a result of SQLAlchemy's costs more than most statements."""
        pooled = connection.connection
        cursor = pooled.cursor()
        try:
            yield cursor
        except self._dbapi.Error as error:
            if connection.dialect.is_disconnect(error, pooled.dbapi_connection, cursor):
                connection.invalidate(error)
            is_refused = isinstance(error, self._dbapi.IntegrityError)
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

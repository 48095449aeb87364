"""Statements that go to the driver past SQLAlchemy, which has only put them into words.

Owns how such a statement is kept and run: for what is done most often, or returns most rows, since
SQLAlchemy's share is then larger than the database's. Values go in, and rows come out, as the
driver has them: texts of type ``Opaque`` as bytes. Connections and transactions stay SQLAlchemy's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.engine.interfaces import DBAPIModule

__all__ = ["Direct", "Row", "driver_of"]

Row: TypeAlias = Sequence[Any]
"""What a statement returns, as the driver does."""

_Values: TypeAlias = Mapping[str, Any]


def driver_of(connection: sa.Connection) -> Any:  # noqa: ANN401  # each driver has its own class
    """Return the driver's own connection."""
    return connection.connection.driver_connection


class Direct:
    """One statement.

    Args:
        statement: with named parameters.
        dialect: of the database that it is for.
    """

    def __init__(self, statement: sa.ClauseElement, dialect: sa.Dialect) -> None:
        compiled: Any = statement.compile(dialect=dialect)
        self._text: str = compiled.string
        self._order: Sequence[str] | None = compiled.positiontup
        self._dialect = dialect
        self._error: type[DBAPIModule.Error] = dialect.loaded_dbapi.Error

    def rows(self, connection: sa.Connection, values: _Values) -> list[Row]:
        """Return all that a query finds.

        Raises:
            sqlalchemy.exc.DBAPIError: as SQLAlchemy would.
        """
        cursor = driver_of(connection).cursor()
        try:
            cursor.execute(self._text, self._given(values))
            rows: list[Row] = cursor.fetchall()
        except self._error as error:
            raise self._told(connection, error) from error
        finally:
            cursor.close()
        return rows

    def count(self, connection: sa.Connection, rows: Sequence[_Values]) -> int:
        """Write once for each of ``rows``; return how many of the table's rows that has touched.

        Raises:
            sqlalchemy.exc.DBAPIError: as SQLAlchemy would.
        """
        cursor = driver_of(connection).cursor()
        try:
            if len(rows) == 1:
                cursor.execute(self._text, self._given(rows[0]))
            else:
                cursor.executemany(self._text, [self._given(row) for row in rows])
            touched: int = cursor.rowcount
        except self._error as error:
            raise self._told(connection, error) from error
        finally:
            cursor.close()
        return touched

    def _told(self, connection: sa.Connection, error: DBAPIModule.Error) -> BaseException:
        """Return the error as SQLAlchemy's; a connection that is lost is given up."""
        if self._dialect.is_disconnect(error, driver_of(connection), None):
            connection.invalidate(error)
        return exc.DBAPIError.instance(
            self._text, None, error, self._error, hide_parameters=True, dialect=self._dialect
        )

    def _given(self, values: _Values) -> _Values | tuple[Any, ...]:
        return values if self._order is None else tuple([values[name] for name in self._order])

"""Connections that the threads which work with SQLite keep.

Owns which thread has which connection. To take one from SQLAlchemy's pool and to give it back costs
more than a small insert, or than to read a node; a thread of a database does nothing else, so it
has a connection of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager

import sqlalchemy as sa

__all__ = ["Kept"]


class Kept:
    """One connection for each thread that asks.

    Args:
        engine: its pool has as many connections as there are threads.
    """

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._own: dict[int, sa.Connection] = {}

    @contextmanager
    def transaction(self, *, lasting: bool) -> Generator[sa.Connection]:
        """Open a transaction on this thread's connection; it ends with the context.

        If ``lasting``, its end is not reached before the disk has what it wrote.
        """
        thread = threading.get_ident()
        connection = self._own.get(thread)
        if connection is None:
            connection = self._own[thread] = self._engine.connect()
        if connection.get_execution_options().get("lasting", True) != lasting:
            connection.execution_options(lasting=lasting)
        try:
            with connection.begin():
                yield connection
        except BaseException:
            # The pool undoes what the driver may have left begun, a commit that failed above all.
            self._own.pop(thread).close()
            raise

    def close(self) -> None:
        """Give all connections back; the threads have ended."""
        while self._own:
            self._own.popitem()[1].close()

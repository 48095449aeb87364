"""One connection for each thread that works with SQLite.

To take a connection from SQLAlchemy's pool and to return it costs more than a small insert, or than
reading a node. A thread of a database does nothing else, so it has a connection of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager

import sqlalchemy as sa

__all__ = ["ThreadConnections"]


class ThreadConnections:
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

        If ``lasting``, its commit waits for the disk.
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
            # The pool rolls back what the driver may have left open, above all a commit that failed.
            self._own.pop(thread).close()
            raise

    def close(self) -> None:
        """Return all connections to the pool; the threads have ended."""
        while self._own:
            self._own.popitem()[1].close()

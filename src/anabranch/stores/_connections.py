"""One connection for each thread that works with a database.

To take a connection from SQLAlchemy's pool and to return it costs more than a small insert, or than
reading a node. A thread of a database does nothing else, so it has a connection of its own.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

TRUSTED = 1.0
"""Seconds after its last use for which a connection is not tested before the next."""


@dataclass(slots=True)
class ConnectionHealth:
    """What is known of the connections to a server: after a failure on one, others may be broken, too.

    Attributes:
        last_failure: the time of ``time.monotonic()``.
    """

    last_failure: float = -math.inf


class ThreadConnections:
    """One connection for each thread that asks.

    Args:
        engine: its pool has as many connections as there are threads.
    """

    def __init__(self, engine: sa.Engine, health: ConnectionHealth) -> None:
        self._engine = engine
        self._health = health
        self._is_autocommit = engine.get_execution_options().get("isolation_level") == "AUTOCOMMIT"
        self._is_remote = engine.dialect.name == "postgresql"  # a file does not go away
        self._own: dict[int, sa.Connection] = {}

    @contextmanager
    def transaction(self, *, lasting: bool) -> Generator[sa.Connection]:
        """Open a transaction on this thread's connection; it ends with the context.

        If ``lasting``, its commit waits for the disk. With ``AUTOCOMMIT``, each statement is a
        transaction by itself.
        """
        try:
            connection = self._of_this_thread()
            if connection.get_execution_options().get("lasting", True) != lasting:
                connection.execution_options(lasting=lasting)
            if self._is_autocommit:
                yield connection
            else:
                with connection.begin():
                    yield connection
            if self._is_remote:
                connection.info["used"] = time.monotonic()
        except BaseException:
            self._health.last_failure = time.monotonic()
            # The pool rolls back what the driver may have left open, above all a commit that failed.
            if (own := self._own.pop(threading.get_ident(), None)) is not None:
                own.close()
            raise

    def _of_this_thread(self) -> sa.Connection:
        """Return the connection of this thread.

        The pool tests one that was idle, or on whose server something has failed since its last use.
        """
        thread = threading.get_ident()
        connection = self._own.get(thread)
        if connection is not None and not self._is_trusted(connection):
            connection.info["used"] = -math.inf
            self._own.pop(thread).close()
            connection = None
        if connection is None:
            connection = self._own[thread] = self._engine.connect()
        return connection

    def _is_trusted(self, connection: sa.Connection) -> bool:
        info = connection.info
        return is_trusted(info) and info.get("used", math.inf) > self._health.last_failure

    def close(self) -> None:
        """Return all connections to the pool; the threads have ended."""
        while self._own:
            self._own.popitem()[1].close()


def is_trusted(info: Mapping[Any, Any]) -> bool:
    """Whether a connection with this ``info`` was just used, or is new, or that of a file."""
    used: float = info.get("used", math.inf)
    return time.monotonic() - used < TRUSTED

"""Locks for periodic jobs: advisory locks of Postgres, so that one of several workers runs a job.

A separate connection holds the locks. When the connection breaks, the locks are free, and the next
use connects again, without locks.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import LiteralString

import psycopg

from anabranch.errors import StoreError

TRY = "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))"
UNLOCK = "SELECT pg_advisory_unlock(hashtextextended(%s, 0))"


class JobLocks:
    """Named locks in one database. A name has one holder, also among the callers in this process.

    Args:
        url: the database, in libpq's form.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: psycopg.AsyncConnection[tuple[bool]] | None = None
        self._held: set[str] = set()
        self._one_at_a_time = asyncio.Lock()

    async def try_lock(self, name: str) -> bool:
        """Lock a name; return false if this process or another has locked it.

        Raises:
            StoreError: if the database cannot be reached; all locks are lost.
        """
        async with self._one_at_a_time:
            if await self._still_holds(name) or not await self._ask(TRY, name):
                return False
            self._held.add(name)
            return True

    async def holds(self, name: str) -> bool:
        """Return whether this process still holds a lock that it took.

        Raises:
            StoreError: if the database cannot be reached; all locks are lost.
        """
        async with self._one_at_a_time:
            return await self._still_holds(name)

    async def unlock(self, name: str) -> None:
        """Unlock a name; do nothing if this process does not hold the lock."""
        async with self._one_at_a_time:
            if name in self._held:
                self._held.discard(name)
                with suppress(StoreError):  # the lock was lost with the connection
                    await self._asked(UNLOCK, name)

    async def close(self) -> None:
        """Release all locks."""
        async with self._one_at_a_time:
            await self._disconnect()

    async def _still_holds(self, name: str) -> bool:
        await self._ask("SELECT true")
        return name in self._held

    async def _ask(self, statement: LiteralString, *values: str) -> bool:
        had_connection = self._connection is not None
        try:
            return await self._asked(statement, *values)
        except StoreError:
            if not had_connection:
                raise
        return await self._asked(statement, *values)  # on a new connection, without locks

    async def _asked(self, statement: LiteralString, *values: str) -> bool:
        try:
            if self._connection is None or self._connection.closed:
                self._held.clear()
                connect = psycopg.AsyncConnection.connect
                self._connection = await connect(self._url, autocommit=True)
            row = await (await self._connection.execute(statement, values)).fetchone()
        except psycopg.Error as error:
            await self._disconnect()
            raise StoreError("The engine's database cannot be reached.") from error
        return row is not None and row[0]

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        self._held.clear()
        if connection is not None:
            await connection.close()

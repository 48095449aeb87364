"""Notices events that other processes append: Postgres announces them, SQLite is polled.

The table is the truth, and an announcement is only a hint to read it. A lost announcement delays
events, and loses none.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import sqlalchemy as sa

from anabranch.errors import StoreError
from anabranch.stores._database import Database
from anabranch.stores._event_tables import CHANNEL, RUN
from anabranch.stores._event_tails import Tail

if TYPE_CHECKING:
    from anabranch.stores._event_tails import Watch

POLL = 0.05
"""Seconds between two polls of a SQLite file."""

CHECK = 2.0
"""Seconds until a read of the store when Postgres announces nothing."""

RETRY = 1.0
"""Seconds until the next attempt after a failure of the store."""

Tails: TypeAlias = Mapping[str, Tail]

logger: logging.Logger = logging.getLogger("anabranch.stores")


def watch_of(database: Database) -> Watch | None:
    """Return the watch for events of other processes, or ``None`` if no other process can append."""
    if not database.is_shared:
        return None
    return _Watch(database, _announced if database.is_postgresql else _polled)


class _Watch:
    """Wakes tails until it is cancelled; starts again after a failure."""

    def __init__(
        self, database: Database, attempt: Callable[[Database, Tails], Awaitable[None]]
    ) -> None:
        self._database = database
        self._attempt = attempt

    async def __call__(self, tails: dict[str, Tail]) -> None:
        """Wake ``tails``."""
        while True:
            try:
                await self._attempt(self._database, tails)
            except StoreError as error:
                logger.warning("run events of other processes are not seen: %s", error)
            for tail in tails.values():  # their readers read the store, and see its error
                tail.wake()
            await asyncio.sleep(RETRY)


async def _polled(database: Database, tails: Tails) -> None:
    version: int | None = None
    while True:
        before, version = version, await database.version()
        if version != before:
            await _look(database, tails)
        await asyncio.sleep(POLL)


async def _announced(database: Database, tails: Tails) -> None:
    async with database.listening(CHANNEL) as heard:
        while True:
            await _look(database, tails)
            async for payload in heard(CHECK):
                name, _, last = payload.partition(":")
                if name in tails:
                    tails[name].wake(int(last))


async def _look(database: Database, tails: Tails) -> None:
    """Wake the tails that lag behind the store."""
    followed = {tail.run: tail for tail in tails.values()}
    for run, last in await database.read(lambda connection: _heads(connection, list(followed))):
        followed[run].wake(last)


def _heads(connection: sa.Connection, runs: Sequence[str]) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    for start in range(0, len(runs), 500):
        some = sa.select(RUN.c.run, RUN.c.last).where(RUN.c.run.in_(runs[start : start + 500]))
        found += [(run, last) for run, last in connection.execute(some)]
    return found

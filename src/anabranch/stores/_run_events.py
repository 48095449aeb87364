"""Run events in a database: the store behind the port :class:`~anabranch._durable.run_events.RunEvents`.

Writers of one run take turns at its row, which has its last number: on Postgres that row is locked,
on SQLite there is one writer anyway.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any

import sqlalchemy as sa

from anabranch._durable.run_events import MissedEventsError
from anabranch.stores._columns import to_bytes, to_text
from anabranch.stores._database import Database
from anabranch.stores._event_tables import (
    APPEND_POSTGRES,
    DELETE,
    FIND,
    HEAD,
    HOLDER,
    INSERT,
    OLD_RUNS,
    PAGE,
    RELEASE,
    SET_FIRST,
    SHORTEN,
    counting,
    leasing,
)
from anabranch.stores._event_tails import Page, Tails
from anabranch.stores._event_watches import watch_of
from anabranch.stores._statements import Row, Statement

__all__ = ["HELD", "Events"]

HELD = 20_000
"""How many events of a run are stored at least; it may be twice as many."""

PAGE_EVENTS, PAGE_BYTES = 500, 64 * 1024
"""The most that is read at once, but for a single event that is larger."""


class Events:
    """Run events in a database. What each method promises is said at the port.

    Args:
        database: has them.
        held: how many events of a run are stored at least.
        closes: whether closing the events closes the database.
    """

    def __init__(self, database: Database, held: int = HELD, *, closes: bool = True) -> None:
        self._database = database
        self._closes = closes
        self._held = held
        self._tails = Tails(self._read, watch_of(database))
        dialect, is_postgresql = database.dialect, database.is_postgresql
        self._count = Statement(counting(is_postgresql=is_postgresql), dialect)
        self._insert = Statement(INSERT, dialect)
        self._insert_all = Statement(APPEND_POSTGRES, dialect)
        self._lease = Statement(leasing(is_postgresql=is_postgresql), dialect)
        self._head, self._page = Statement(HEAD, dialect), Statement(PAGE, dialect)
        self._find, self._holder = Statement(FIND, dialect), Statement(HOLDER, dialect)
        self._shorten, self._release = Statement(SHORTEN, dialect), Statement(RELEASE, dialect)
        self._old_runs = Statement(OLD_RUNS, dialect)
        self._delete, self._set_first = Statement(DELETE, dialect), Statement(SET_FIRST, dialect)

    async def append(
        self,
        run: str,
        events: Sequence[bytes],
        *,
        at: float,
        key: str = "",
        release: str | None = None,
    ) -> int:
        if not events:
            return await self.last(run)
        values: dict[str, Any] = {
            "this": to_bytes(run),
            "count": len(events),
            "now": at,
            "name": to_bytes(key) if key else None,
            "old_owner": None if release is None else to_bytes(release),
        }
        if self._database.is_postgresql:
            values |= {"events": list(events)}
            found = await self._database.write_single(
                lambda connection: self._insert_all.rows(connection, values)[0]
            )
        else:
            found = await self._database.write(
                lambda connection: self._add(connection, values, events), lasting=False
            )
        first, last = found[:2]
        self._tails.publish(run, last - len(events) + 1, events)
        if last - first >= 2 * self._held:
            await self._database.write(
                lambda connection: self._drop(connection, to_bytes(run), last - self._held + 1),
                lasting=False,
            )
        return int(last)

    def _add(
        self, connection: sa.Connection, values: dict[str, Any], events: Sequence[bytes]
    ) -> Row:
        this, name = values["this"], values["name"]
        [head] = self._count.rows(connection, values)
        first = head[1] - len(events) + 1
        rows = [
            {"run": this, "number": first + place, "key": None if place else name, "data": data}
            for place, data in enumerate(events)
        ]
        self._insert.count(connection, *rows)
        return head

    def _drop(self, connection: sa.Connection, this: bytes, until: int) -> int:
        """Delete the events before number ``until``; return how many."""
        values = {"this": this, "until": until}
        self._set_first.count(connection, values)
        return self._delete.count(connection, values)

    async def find(self, run: str, key: str) -> int | None:
        [(number,)] = await self._rows(self._find, this=to_bytes(run), name=to_bytes(key))
        return None if number is None else int(number)

    async def last(self, run: str) -> int:
        return next((last for _, last in await self._rows(self._head, this=to_bytes(run))), 0)

    def follow(self, run: str, after: int) -> AsyncGenerator[tuple[int, Sequence[bytes]]]:
        return self._tails.follow(run, after)

    async def _read(self, run: str, after: int) -> Page:
        this = to_bytes(run)
        wanted = {"this": this, "after": after, "most": PAGE_EVENTS, "bytes": PAGE_BYTES}

        def work(connection: sa.Connection) -> Page:
            first, last = next(iter(self._head.rows(connection, {"this": this})), (1, 0))
            rows = self._page.rows(connection, wanted)
            if not first <= after + 1 <= last + 1:
                raise MissedEventsError(run, after, last)
            return Page([data for _, data in rows], last)

        return await self._database.read_at_once(work)

    async def lease(self, run: str, owner: str, now: float, until: float) -> bool:
        this = to_bytes(run)
        values = {"this": this, "new_owner": to_bytes(owner), "now": now, "until": until}

        def work(connection: sa.Connection) -> bool:
            if self._lease.count(connection, values):
                return True
            self._shorten.count(connection, {"this": this, "until": until})
            return False

        return await self._database.write(work, lasting=False)

    async def release(self, run: str, owner: str) -> None:
        values = {"this": to_bytes(run), "old_owner": to_bytes(owner)}
        await self._database.write(
            lambda connection: self._release.count(connection, values), lasting=False
        )

    async def holder(self, run: str, now: float) -> str | None:
        found = await self._rows(self._holder, this=to_bytes(run), now=now)
        return to_text(found[0][0]) if found else None

    async def prune(self, before: float, limit: int) -> int:
        def work(connection: sa.Connection) -> int:
            deleted = 0
            for run, first, last in self._old_runs.rows(
                connection, {"before": before, "most": limit}
            ):
                if deleted < limit:
                    until = min(last, first + limit - deleted - 1) + 1
                    deleted += self._drop(connection, run, until)
            return deleted

        return await self._database.write(work, lasting=False)

    async def close(self) -> None:
        if self._closes:
            await self._database.close()
        self._tails.wake_all()

    async def _rows(self, statement: Statement, **values: Any) -> Sequence[Row]:  # noqa: ANN401
        return await self._database.read(lambda connection: statement.rows(connection, values))

"""Run events in a database: the store behind the port :class:`~anabranch._durable.run_events.RunEvents`.

Writers of one run take turns at its row, which has its last number. Postgres locks that row, and
SQLite has one writer anyway.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from itertools import chain, count, repeat
from typing import Any, TypeVar

import sqlalchemy as sa

from anabranch._durable.engine import Processes
from anabranch._durable.run_events import (
    EventBatch,
    EventId,
    MissedEventsError,
    NewEvents,
    TakenRun,
)
from anabranch.errors import StoreError
from anabranch.stores import _event_tables as sql
from anabranch.stores._database import Database
from anabranch.stores._event_tails import UNKNOWN, Page, Tails, watch_of
from anabranch.stores._sql import Row, Statement, optional_bytes, to_bytes, to_text
from anabranch.stores._threads import Work

T = TypeVar("T")

HELD = 20_000
"""Minimum events stored of a run; up to twice as many may be, and more while the run has a lease."""

PAGE_EVENTS, PAGE_BYTES = 500, 64 * 1024
"""Maximum events and bytes in one read; a single larger event is allowed."""


class Events:
    """Run events in a database; see the port for the methods.

    Args:
        database: stores the events.
        held: minimum events stored of each run.
        closes: whether closing the events closes the database.
    """

    def __init__(self, database: Database, held: int = HELD, *, closes: bool = True) -> None:
        self._database = database
        self._closes = closes
        self._held = held
        self._tails = Tails(self._read, watch_of(database))

    @property
    def processes(self) -> Processes:
        """See the port."""
        return self._database.processes

    async def append(
        self,
        run: str,
        events: Sequence[bytes],
        *,
        at: float,
        key: str = "",
        release: str | None = None,
    ) -> int:
        new = [NewEvents(run, events, key, release)] if events else []
        added = await self._append(new, at)
        return added[0] if added else await self.last(run)

    async def append_all(self, new: Sequence[NewEvents], *, at: float) -> None:
        await self._append(new, at)

    async def _append(self, new: Sequence[NewEvents], at: float) -> Sequence[int]:
        """Add events; return the last number of each run that took events."""
        if not new:
            return []
        mark = _new_mark()
        if self._database.is_postgresql:
            values = _as_arrays(new, at, mark)
            heads = await self._database.write_single(
                lambda connection: sql.APPEND_POSTGRES.rows(connection, values)
            )
        else:
            heads = await self._database.write(
                lambda connection: self._add(connection, new, at, mark), lasting=False
            )
        for place, first, last, owner, *_ in heads:
            each = new[int(place) - 1]
            self._tails.publish(each.run, last - len(each.events) + 1, each.events, mark)
            if owner is None:
                await self._hold_latest(each.run, first, last)
        return [int(last) for _, _, last, *_ in heads]

    def _add(
        self, connection: sa.Connection, new: Sequence[NewEvents], at: float, mark: int
    ) -> Sequence[Row]:
        """Add events; return place, first number, last number and owner for each run that took events."""
        places = {
            to_bytes(each.run): place
            for place, each in enumerate(new, 1)
            if self._may_add(connection, each)
        }
        if not places:
            return []
        sizes = [(name, len(new[place - 1].events), at, mark) for name, place in places.items()]
        heads = {name: head for name, *head in sql.COUNT.rows(connection, sizes)}
        rows: list[Row] = []
        for name, size, *_ in sizes:
            each = new[places[name] - 1]
            keys = chain([to_bytes(each.key) if each.key else None], repeat(None))
            numbers = count(heads[name][1] - size + 1)
            rows += zip(repeat(name), numbers, keys, each.events, repeat(mark))
        sql.ADD.rows(connection, rows)
        return [(place, *heads[name]) for name, place in places.items()]

    def _may_add(self, connection: sa.Connection, new: NewEvents) -> bool:
        """Return whether the owner of the events, if they have one, holds the lease."""
        if new.release is not None:
            return self._is_released(connection, new)
        values = {"this": to_bytes(new.run), "old_owner": optional_bytes(new.lease)}
        return new.lease is None or bool(sql.HOLDS.rows(connection, values))

    def _is_released(self, connection: sa.Connection, new: NewEvents) -> bool:
        """Release a lease, or pass it to another owner; return whether the lease was held."""
        values: dict[str, Any] = {
            "this": to_bytes(new.run),
            "old_owner": optional_bytes(new.release),
        }
        if new.successor is None:
            return sql.RELEASE.count(connection, values) > 0
        owner, until = new.successor
        values |= {"new_owner": to_bytes(owner), "now": math.inf, "until": until}
        return sql.TAKE_OVER.count(connection, values) > 0

    async def begin(
        self,
        run: str,
        owner: str,
        until: float,
        event: bytes,
        *,
        at: float,
        key: str,
        instead: str | None = None,
    ) -> int | None:
        values = {"this": to_bytes(run), "new_owner": to_bytes(owner), "now": at, "until": until}
        mark = _new_mark()
        values |= {"name": to_bytes(key), "old_owner": optional_bytes(instead), "mark": mark}

        def on_sqlite(connection: sa.Connection) -> Sequence[Row]:
            if sql.FIND.rows(connection, values)[0][0] is not None:
                return []
            if instead is not None:
                sql.RELEASE.count(connection, values)
            if not sql.LEASE.count(connection, {**values, "now": 0.0}):
                return []
            added = self._add(connection, [NewEvents(run, [event], key)], at, mark)
            return [(first, last) for _, first, last, _ in added]

        def on_postgresql(connection: sa.Connection) -> Sequence[Row]:
            return sql.BEGIN_POSTGRES.rows(connection, {**values, "event": event})

        is_postgresql = self._database.is_postgresql
        for first, last, *_ in await self._change(on_postgresql if is_postgresql else on_sqlite):
            self._tails.publish(run, last, [event], mark)
            await self._hold_latest(run, first, last, begun=last)
            return int(last)
        return None

    async def _hold_latest(self, run: str, first: int, last: int, begun: int = 0) -> None:
        """Delete the oldest events of a long run; an open run keeps those from number ``begun`` on."""
        if last - first >= 2 * self._held:
            with suppress(StoreError):  # the events are stored; the next append shortens the run
                await self._shorten_to(to_bytes(run), last - self._held + 1, begun)

    async def _shorten_to(self, this: bytes, first: int, begun: int = 0) -> None:
        """Delete the events before number ``first``."""
        await self._database.write(
            lambda connection: self._drop(connection, this, first, begun), lasting=False
        )

    def _drop(self, connection: sa.Connection, this: bytes, until: int, begun: int = 0) -> int:
        """Delete the events before number ``until``; return the number of deleted events.

        An open run keeps its events from number ``begun`` on.
        """
        values = {"this": this, "until": until, "begun": begun}
        is_moved = sql.SET_FIRST.count(connection, values) > 0
        return sql.DELETE.count(connection, values) if is_moved else 0

    async def find(self, run: str, key: str) -> int | None:
        [(number,)] = await self._rows(sql.FIND, this=to_bytes(run), name=to_bytes(key))
        return None if number is None else int(number)

    async def last(self, run: str) -> int:
        return (await self.id_of(run)).number

    async def id_of(self, run: str, number: int | None = None) -> EventId:
        found = await self._rows(sql.HEAD, this=to_bytes(run), after=number or 0)
        last, newest, mark = found[0] if found else (0, 0, None)
        return EventId(last, newest) if number in {None, last} else EventId(number or 0, mark or 0)

    def follow(self, run: str, after: int | EventId) -> AsyncGenerator[EventBatch]:
        return self._tails.follow(run, after)

    async def _read(self, run: str, at: EventId) -> Page:
        after, mark = at
        rows = await self._rows(
            sql.PAGE, this=to_bytes(run), after=after, most=PAGE_EVENTS, bytes=PAGE_BYTES
        )
        first, last, newest, before = rows[0][:4] if rows else (1, 0, 0, None)
        before = newest if after == last else before or 0
        is_proven = mark == UNKNOWN or mark == before > 0
        if not (is_proven and first <= after + 1 <= last + 1):
            raise MissedEventsError(run, after, EventId(last, newest))
        found = [each for _, _, _, _, *each in rows if each[0] is not None]
        return Page([data for _, data, _ in found], [mark for _, _, mark in found], last, before)

    async def lease(self, run: str, owner: str, now: float, until: float) -> bool:
        this = to_bytes(run)
        values = {"this": this, "new_owner": to_bytes(owner), "now": now, "until": until}

        def work(connection: sa.Connection) -> bool:
            if sql.LEASE.count(connection, values):
                return True
            sql.SHORTEN.count(connection, {"this": this, "until": until})
            return False

        return await self._change(work)

    async def release(self, run: str, owner: str) -> None:
        values = {"this": to_bytes(run), "old_owner": to_bytes(owner)}
        await self._change(lambda connection: sql.RELEASE.count(connection, values))

    async def holder(self, run: str, now: float) -> str | None:
        found = await self._rows(sql.HOLDER, this=to_bytes(run), now=now)
        return to_text(found[0][0]) if found else None

    async def renew(self, run: str, owner: str, until: float) -> bool:
        return await self.take_over(run, owner, owner, math.inf, until)

    async def take_over(self, run: str, owner: str, other: str, now: float, until: float) -> bool:
        values = {"this": to_bytes(run), "old_owner": to_bytes(owner), "now": now}
        values |= {"new_owner": to_bytes(other), "until": until}
        return await self._change(lambda connection: sql.TAKE_OVER.count(connection, values)) > 0

    async def take(
        self, run: str, owner: str, other: str, until: float, key: str
    ) -> TakenRun | None:
        values = {"this": to_bytes(run), "old_owner": to_bytes(owner), "until": until}
        values |= {"new_owner": to_bytes(other), "name": to_bytes(key)}
        found = await self._change(lambda connection: sql.TAKE.rows(connection, values))
        return next((TakenRun(begun, last) for begun, last, *_ in found), None)

    async def overdue(self, now: float, limit: int) -> Sequence[tuple[str, str, float]]:
        found = await self._rows(sql.OVERDUE, now=now, most=limit)
        return [(to_text(run), to_text(owner), until) for run, owner, until in found]

    async def prune(self, before: float, limit: int) -> int:
        def work(connection: sa.Connection) -> int:
            deleted = 0
            for run, first, last in sql.OLD_RUNS.rows(
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

    async def _change(self, work: Work[T]) -> T:
        """Run work in which at most one statement changes rows; no commit waits for the disk."""
        if self._database.is_postgresql:
            return await self._database.write_single(work)
        return await self._database.write(work, lasting=False)

    async def _rows(self, statement: Statement, **values: Any) -> Sequence[Row]:  # noqa: ANN401
        return await self._database.read(lambda connection: statement.rows(connection, values))


def _new_mark() -> int:
    """Draw a random mark, so that an event stored again after a crash has another mark."""
    return secrets.randbits(48) or 1


def _as_arrays(new: Sequence[NewEvents], at: float, mark: int) -> dict[str, Any]:
    """Return the events as the parameters of ``APPEND_POSTGRES``."""
    items = [
        (place, number, data)
        for place, each in enumerate(new, 1)
        for number, data in enumerate(each.events, 1)
    ]
    return {
        "now": at,
        "mark": mark,
        "runs": [to_bytes(each.run) for each in new],
        "counts": [len(each.events) for each in new],
        "names": [to_bytes(each.key) if each.key else None for each in new],
        "holders": [optional_bytes(each.release or each.lease) for each in new],
        "old_owners": [optional_bytes(each.release) for each in new],
        "new_owners": [optional_bytes(each.successor and each.successor[0]) for each in new],
        "untils": [each.successor and each.successor[1] for each in new],
        "places": [place for place, _, _ in items],
        "numbers": [number for _, number, _ in items],
        "events": [data for _, _, data in items],
    }

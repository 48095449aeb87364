"""Run events in a database: the store behind the port :class:`~anabranch._durable.RunEvents`."""

from __future__ import annotations

import math
import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, count, repeat
from typing import Any, TypeVar

import sqlalchemy as sa

from anabranch._durable import (
    EventBatch,
    EventId,
    MissedEventsError,
    NewEvents,
    Processes,
    QueuedTurn,
    TakenTurn,
    TurnRecord,
    TurnState,
)
from anabranch.errors import StoreError
from anabranch.stores import _event_tables as sql
from anabranch.stores._database import Database, InDatabase
from anabranch.stores._event_tails import UNKNOWN, Page, Tails, watch_of
from anabranch.stores._sql import Row, optional_bytes, to_bytes, to_text
from anabranch.stores._threads import Work
from anabranch.stores._trees import Trees
from anabranch.tree import Node, Ref, Result

T = TypeVar("T")

HELD = 20_000
"""Minimum events stored of a run; up to twice as many may be, and more while the run has a turn."""

PAGE_EVENTS, PAGE_BYTES = 500, 64 * 1024
"""Maximum events and bytes in one read; a single larger event is allowed."""


class Events(InDatabase):
    """Run events in a database: at least the last ``held`` of each run."""

    def __init__(self, database: Database, held: int = HELD, *, closes: bool = True) -> None:
        super().__init__(database, closes=closes)
        self._held = held
        self.per_share: int | None = None
        self._tails = Tails(self._read, watch_of(database))

    @property
    def processes(self) -> Processes:
        return self.database.processes

    async def append(self, run: str, events: Sequence[bytes], *, at: float) -> int:
        added = await self._append([NewEvents(run, events)] if events else [], at)
        return added[0] if added else await self.last(run)

    async def append_all(self, new: Sequence[NewEvents], *, at: float) -> None:
        await self._append(new, at)

    async def _append(self, new: Sequence[NewEvents], at: float) -> Sequence[int]:
        """Add events; return the last event's number of each run that took events."""
        if not new:
            return []
        mark = _new_mark()
        if self.database.is_postgresql:
            values = _as_arrays(new, at, mark)
            heads = await self.database.write_single(
                lambda connection: sql.APPEND_POSTGRES.rows(connection, values)
            )
        else:
            heads = await self.database.write(
                lambda connection: self._add(connection, new, at, mark), lasting=False
            )
        await self._publish(new, heads, mark)
        return [int(last) for _, _, last, *_ in heads]

    async def _publish(self, new: Sequence[NewEvents], heads: Sequence[Row], mark: int) -> None:
        """Pass events that the store has taken to the readers in this process."""
        for place, first, last, state, *_ in heads:
            each = new[int(place) - 1]
            self._tails.publish(each.run, last - len(each.events) + 1, each.events, mark)
            if state is None:
                await self._hold_latest(each.run, first, last)

    async def append_with(
        self,
        trees: Trees,
        new: NewEvents,
        nodes: Sequence[Node],
        *,
        results: Sequence[Result] = (),
        refs: Sequence[Ref] = (),
        at: float,
    ) -> None:
        """Add events and nodes in one transaction; see :func:`~anabranch.stores.append_reported`."""
        mark = _new_mark()
        lease = {"this": to_bytes(new.run), "old_owner": optional_bytes(new.owner)}

        def add(connection: sa.Connection) -> Sequence[Row]:
            heads: Sequence[Row] = ()
            if new.events:
                heads = self._add(connection, [new], at, mark)
            if new.owner is not None and not (heads or sql.HOLDS.rows(connection, lease)):
                raise StoreError(f"Another worker has taken over the turn of {new.run!r}.")
            return heads

        heads = await trees.append_after(add, nodes, results, refs)
        await self._publish([new], heads, mark)
        if heads and self.database.is_postgresql:
            values = {"this": to_bytes(new.run), "last": heads[0][2]}
            with suppress(StoreError):  # other processes then see the events at their next look
                await self._change(lambda connection: sql.ANNOUNCE.rows(connection, values))

    def _add(
        self, connection: sa.Connection, new: Sequence[NewEvents], at: float, mark: int
    ) -> Sequence[Row]:
        """Add events; return place, first and last number, and state of each run that took some."""
        heads, rows = list[Row](), list[Row]()
        for place, each in enumerate(new, 1):
            name, size = to_bytes(each.run), len(each.events)
            values = {"this": name, "size": size, "at": at, "mark": mark, "look": each.look_at}
            values["old_owner"] = optional_bytes(each.owner)
            count_events = sql.COUNT_LAST if each.ends else sql.COUNT_OWNED
            if each.owner is None:
                count_events = sql.COUNT
            for head in count_events.rows(connection, values):
                heads.append((place, *head))
                keys = chain([to_bytes(each.key) if each.key else None], repeat(None))
                numbers = count(head[1] - size + 1)
                rows += zip(repeat(name), numbers, keys, each.events, repeat(mark))
        sql.ADD.run(connection, rows)
        return heads

    async def begin(
        self,
        run: str,
        turn: TurnRecord,
        event: bytes,
        *,
        at: float,
        share: str = "",
        works: bool = False,
    ) -> int | None:
        mark, this = _new_mark(), to_bytes(run)
        values = {"this": this, "at": at, "mark": mark, "size": 1, **_columns(turn, "new_")}
        values |= {"share": to_bytes(share), "works": works}

        def on_sqlite(connection: sa.Connection) -> Sequence[Row]:
            begun = sql.BEGIN.rows(connection, values)
            added = [(this, last, values["new_turn"], event, mark) for _, last in begun]
            sql.ADD.run(connection, added)
            return begun

        def on_postgresql(connection: sa.Connection) -> Sequence[Row]:
            return sql.BEGIN_POSTGRES.rows(connection, {**values, "event": event})

        is_postgresql = self.database.is_postgresql
        begin = on_postgresql if is_postgresql else on_sqlite
        looks = {"this": this, "look": at}
        begun = await self._change_within_limit(
            values if works else None, begin, lambda connection: sql.LOOK.count(connection, looks)
        )
        for first, last, *_ in begun:
            self._tails.publish(run, last, [event], mark)
            await self._hold_latest(run, first, last, begun=last)
            return int(last)
        return None

    async def _hold_latest(self, run: str, first: int, last: int, begun: int = 0) -> None:
        """Delete the oldest events of a long run; a run with a turn keeps those from number ``begun`` on."""
        if last - first >= 2 * self._held:
            with suppress(StoreError):  # the events are stored; the next append shortens the run
                await self._shorten_to(to_bytes(run), last - self._held + 1, begun)

    async def _shorten_to(self, this: bytes, first: int, begun: int = 0) -> None:
        await self.database.write(
            lambda connection: self._drop(connection, this, first, begun), lasting=False
        )

    def _drop(self, connection: sa.Connection, this: bytes, until: int, begun: int = 0) -> int:
        """Delete events before ``until``; a turn keeps its events from number ``begun`` on."""
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

    async def queue(self, run: str, turn_id: str, event: bytes) -> bool:
        values = {"this": to_bytes(run), "name": to_bytes(turn_id), "event": event}
        queue = sql.QUEUE
        return await self.database.write(lambda connection: queue.count(connection, values)) > 0

    async def queued(self, run: str) -> QueuedTurn | None:
        found = await self._rows(sql.QUEUED, this=to_bytes(run))
        return QueuedTurn(to_text(found[0][0]), bytes(found[0][1])) if found else None

    async def claim(
        self, now: float, until: float, limit: int, *, version: str = ""
    ) -> Sequence[str]:
        values: dict[str, object] = {"now": now, "until": until, "most": limit}
        values |= {
            "any_version": b"",
            "this_version": to_bytes(version),
            "per_share": self.per_share,
        }
        claim = sql.CLAIM if self.per_share is None else sql.CLAIM_SHARED
        found = await self._change(lambda connection: claim.rows(connection, values))
        return [to_text(run) for run, *_ in found]

    async def take(
        self, run: str, owner: str, until: float, *, now: float, version: str | None
    ) -> TakenTurn | None:
        values: dict[str, object] = {"this": to_bytes(run), "until": until, "now": now}
        values |= {"new_owner": to_bytes(owner), "new_process": self.processes.name}
        values |= {"any_version": b"", "this_version": optional_bytes(version)}
        take = sql.TAKE_ANY if version is None else sql.TAKE
        taken = await self._change_within_limit(
            None if version is None else {**values, "share": None},
            lambda connection: take.rows(connection, values),
            lambda connection: sql.DUE_NOW.count(connection, values),
        )
        for row in taken:
            columns, (begun, last) = row[: len(sql.TURN_COLUMNS)], row[len(sql.TURN_COLUMNS) :][:2]
            return TakenTurn(_turn_of(columns), begun, last)
        return None

    async def move(
        self, run: str, turn: TurnRecord, to: TurnRecord | None, *, now: float = math.inf
    ) -> bool:
        values = {
            "this": to_bytes(run),
            "now": now,
            **_columns(turn, "old_"),
            **_columns(to, "new_"),
        }
        return await self._change(lambda connection: sql.MOVE.count(connection, values)) > 0

    async def turn(self, run: str) -> TurnRecord | None:
        found = await self._rows(sql.TURN, this=to_bytes(run))
        return _turn_of(found[0]) if found else None

    async def overdue(
        self, now: float, limit: int, *, is_running: bool = False
    ) -> Sequence[tuple[str, TurnRecord]]:
        overdue = sql.OVERDUE_RUNNING if is_running else sql.OVERDUE
        found = await self._rows(overdue, now=now, most=limit)
        return [(to_text(run), _turn_of(columns)) for run, *columns in found]

    async def look(self, run: str, at: float) -> None:
        values = {"this": to_bytes(run), "look": at}
        await self._change(lambda connection: sql.LOOK.count(connection, values))

    async def looked(self, run: str, at: float, *, now: float) -> None:
        values = {"this": to_bytes(run), "look": None if at == math.inf else at, "now": now}
        await self._change(lambda connection: sql.LOOKED.count(connection, values))

    async def renew(self, run: str, owner: str, until: float) -> bool:
        values = {"this": to_bytes(run), "old_owner": to_bytes(owner), "until": until}
        return await self._change(lambda connection: sql.RENEW.count(connection, values)) > 0

    async def release(self, run: str, owner: str) -> None:
        values = {"this": to_bytes(run), "old_owner": to_bytes(owner)}
        await self._change(lambda connection: sql.RELEASE.count(connection, values))

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

        return await self.database.write(work, lasting=False)

    async def close(self) -> None:
        await super().close()
        self._tails.wake_all()

    async def _change(self, work: Work[T]) -> T:
        """Do ``work``, in which at most one statement changes rows, without a wait for the disk."""
        if self.database.is_postgresql:
            return await self.database.write_single(work)
        return await self.database.write(work, lasting=False)

    async def _change_within_limit(
        self, share: Mapping[str, object] | None, work: Work[Sequence[Row]], wait: Work[object]
    ) -> Sequence[Row]:
        """Do ``work``, which runs a turn, or ``wait`` if its ``share`` runs the maximum."""
        most = self.per_share
        if share is None or most is None:
            return await self._change(work)

        def limited(connection: sa.Connection) -> Sequence[Row]:
            if self.database.is_postgresql:
                sql.LOCK_SHARES.rows(connection, {})
            [(number,)] = sql.RUNNING.rows(connection, share)
            if number < most:
                return work(connection)
            wait(connection)
            return []

        return await self.database.write(limited, lasting=False)


def _columns(turn: TurnRecord | None, prefix: str) -> dict[str, Any]:
    """Return the columns of ``turn`` as parameters, which are null without a turn."""
    if turn is None:
        return dict.fromkeys(f"{prefix}{name}" for name in sql.TURN_COLUMNS)
    values = (
        to_bytes(turn.id),
        str(turn.state),
        turn.due,
        to_bytes(turn.owner),
        turn.process,
        turn.attempt,
        to_bytes(turn.version),
        turn.wakes_at,
    )
    names = (f"{prefix}{name}" for name in sql.TURN_COLUMNS)
    return dict(zip(names, values, strict=True))


def _turn_of(columns: Row) -> TurnRecord:
    turn, state, due, owner, process, attempt, version, wakes_at = columns
    held = (to_text(owner), process)
    return TurnRecord(
        to_text(turn), TurnState(state), due, *held, attempt, to_text(version), wakes_at
    )


def _new_mark() -> int:
    """Draw a random mark, so that an event stored again after a crash has another mark."""
    return secrets.randbits(48) or 1


def _as_arrays(new: Sequence[NewEvents], at: float, mark: int) -> dict[str, Any]:
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
        "owners": [optional_bytes(each.owner) for each in new],
        "ends": [each.ends for each in new],
        "looks": [each.look_at for each in new],
        "places": [place for place, _, _ in items],
        "numbers": [number for _, number, _ in items],
        "events": [data for _, _, data in items],
    }

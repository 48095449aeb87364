"""Calls in a database, behind the port :class:`~anabranch._durable.store.CallStore`.

Owns which statement is done when, and what its outcome means. That writers of one call do not get into each other's way:

- who is first is decided by a unique key, never by looking first;
- whoever records takes the call's row first, so that the order of ids is the order of commits,
  and no two writers wait for each other in a circle (on SQLite there is one writer anyway);
- a call's row changes only where it is still what the change assumes (``WHERE status = 'open'``).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc

from anabranch._durable.store import CallRecord, OpenedRound, RoundRecord
from anabranch.errors import UnknownCallError
from anabranch.stores._call_tables import (
    ADD_POSTGRES,
    CALL,
    CALL_AND_ROUND,
    ENTRIES,
    ENTRY,
    EXPIRED,
    FIND,
    LAST_ROUND,
    LEASE,
    LOCK,
    MOVE,
    ONE_ENTRY,
    PRUNE,
    RELEASE,
    ROUND,
    ROUND_NUMBER,
    insert_first,
)
from anabranch.stores._columns import to_bytes, to_text
from anabranch.stores._database import Database
from anabranch.stores._statements import Direct, Row

__all__ = ["Calls"]


class Calls:
    """Calls in a database. What each method promises is said at the port."""

    def __init__(self, database: Database) -> None:
        self._database = database
        first = partial(insert_first, is_postgresql=database.is_postgresql)
        self._insert_call = first(CALL)
        # What every round does goes to the driver in its own words; the rest through SQLAlchemy.
        dialect = database.dialect
        self._begin = Direct(self._insert_call, dialect)
        self._insert_round = Direct(first(ROUND), dialect)
        self._insert_entry = Direct(first(ENTRY), dialect)
        self._insert_entries = Direct(ADD_POSTGRES, dialect)
        # SQLite has one writer, who has no need of it.
        self._lock = Direct(LOCK, dialect) if database.is_postgresql else None
        self._lease, self._release = Direct(LEASE, dialect), Direct(RELEASE, dialect)
        self._move = Direct(MOVE, dialect)
        self._call_and_round = Direct(CALL_AND_ROUND, dialect)
        self._entries = Direct(ENTRIES, dialect)
        self._add = self._add_postgres if database.is_postgresql else self._add_sqlite

    async def begin(self, call: CallRecord) -> CallRecord:
        """Create the call, or leave it; return what is there."""
        row = {**_row(call), "owner": None, "leased_until": None}

        def work(connection: sa.Connection) -> CallRecord:
            # The one that is in the way may be pruned before it is read; then there is room.
            while not connection.execute(self._insert_call, row).rowcount:
                if (found := _find(connection, call.call_id)) is not None:
                    return found
            return call

        return await self._database.write_single(work)

    async def find(self, call_id: str) -> CallRecord | None:
        """Return the call, if it is known."""
        return await self._database.read(lambda connection: _find(connection, call_id))

    async def lease(self, call_id: str, owner: str, now: float, until: float) -> bool:
        """Take or prolong the right to run the call."""
        values = {
            "this": to_bytes(call_id),
            "new_owner": to_bytes(owner),
            "now": now,
            "until": until,
        }

        def work(connection: sa.Connection) -> bool:
            if self._lease.count(connection, [values]):
                return True
            if _find(connection, call_id) is None:
                raise UnknownCallError(call_id)
            return False

        return await self._database.write(work, lasting=False)

    async def open_round(
        self,
        call_id: str,
        number: int,
        owner: str,
        now: float,
        until: float,
        *,
        new: CallRecord | None = None,
    ) -> OpenedRound | None:
        """Take the right to run the call, unless the round has ended; return what is known of it.

        The call's row is locked first, and what changes the call takes that too: nothing comes
        between the reading and the lease.
        """
        this, by = to_bytes(call_id), to_bytes(owner)
        which = {"this": this, "which": number}
        lease = {"this": this, "new_owner": by, "now": now, "until": until}
        row = _call_to_row(new, by, until) if new is not None else {}

        def work(connection: sa.Connection) -> OpenedRound | None:
            while not (new is not None and self._begin.count(connection, [row])):
                if self._lock is not None:
                    self._lock.rows(connection, which)
                for found in self._call_and_round.rows(connection, which):
                    call, ended = _row_to_call(found[:7]), _row_to_round(found[7:])
                    if ended is None and not self._lease.count(connection, [lease]):
                        return None
                    return OpenedRound(call, ended, self._entries_of(connection, which))
                if new is None:
                    raise UnknownCallError(call_id)
            return OpenedRound(new, None, {})

        # What a lease guards is written later; that a call has begun must last.
        return await self._database.write(work, lasting=new is not None)

    def _entries_of(self, connection: sa.Connection, which: Mapping[str, Any]) -> dict[str, str]:
        return {
            to_text(step_id): to_text(text)
            for step_id, text in self._entries.rows(connection, which)
        }

    async def release(self, call_id: str, owner: str) -> None:
        """Give the right back."""
        values = {"this": to_bytes(call_id), "old_owner": to_bytes(owner)}
        await self._database.write(
            lambda connection: self._release.count(connection, [values]), lasting=False
        )

    async def record(self, call_id: str, number: int, entries: Mapping[str, str]) -> dict[str, str]:
        """Write entries, each unless its step has one; return what is stored now."""
        wanted = dict(entries)

        def work(connection: sa.Connection) -> dict[str, str]:
            added = self._add(connection, call_id, number, wanted)
            stored: dict[str, str] = {}
            for step_id, text in wanted.items():
                if step_id not in added:
                    kept = connection.scalar(ONE_ENTRY, {"this": call_id, "step": step_id})
                    if kept is None:
                        raise UnknownCallError(call_id)
                    stored[step_id] = kept
                else:
                    stored[step_id] = text
            return stored

        return await self._database.write_single(work)

    def _add_sqlite(
        self, connection: sa.Connection, call_id: str, number: int, entries: Mapping[str, str]
    ) -> set[str]:
        added, this = set[str](), to_bytes(call_id)
        for step_id, text in entries.items():
            row = {"number": number, "call_id": this}
            row |= {"step_id": to_bytes(step_id), "text": to_bytes(text)}
            with _known(call_id):
                if self._insert_entry.count(connection, [row]):
                    added.add(step_id)
        return added

    def _add_postgres(
        self, connection: sa.Connection, call_id: str, number: int, entries: Mapping[str, str]
    ) -> set[str]:
        values = {
            "call_id": to_bytes(call_id),
            "number": number,
            "step_ids": [to_bytes(step_id) for step_id in entries],
            "texts": [to_bytes(text) for text in entries.values()],
        }
        return {to_text(step_id) for (step_id,) in self._insert_entries.rows(connection, values)}

    async def entries(self, call_id: str, number: int) -> dict[str, str]:
        """Return what was recorded in a round, in that order."""
        values = {"this": to_bytes(call_id), "which": number}
        return await self._database.read(lambda connection: self._entries_of(connection, values))

    async def end_round(
        self,
        call_id: str,
        record: RoundRecord,
        *,
        deadline: float | None,
        status: str = "open",
        release: str | None = None,
    ) -> RoundRecord:
        """Write how a round ended, unless that is written; return what is."""
        this = to_bytes(call_id)
        row: dict[str, Any] = {"call_id": this, "number": record.number}
        row |= {name: to_bytes(getattr(record, name)) for name in ("answers", "reply", "state")}
        move = {"this": this, "new_status": status, "new_deadline": deadline}

        def work(connection: sa.Connection) -> RoundRecord:
            with _known(call_id):
                first = self._insert_round.count(connection, [row])
            if release is not None:
                back = {"this": this, "old_owner": to_bytes(release)}
                self._release.count(connection, [back])
            if first:
                self._move.count(connection, [move])
                return record
            kept = _round(connection, ROUND_NUMBER, {"this": call_id, "which": record.number})
            if kept is None:
                raise UnknownCallError(call_id)
            return kept

        return await self._database.write(work)

    async def round(self, call_id: str, number: int) -> RoundRecord | None:
        """Return how a round ended, if it has."""
        values = {"this": call_id, "which": number}
        return await self._database.read(
            lambda connection: _round(connection, ROUND_NUMBER, values)
        )

    async def last_round(self, call_id: str) -> RoundRecord | None:
        """Return the latest round that has ended, if any."""
        return await self._database.read(
            lambda connection: _round(connection, LAST_ROUND, {"this": call_id})
        )

    async def finish(self, call_id: str, status: str, *, deadline: float | None = None) -> bool:
        """Move the call to ``status`` if it is open."""
        values = {"this": call_id, "new_status": status, "new_deadline": deadline}
        return await self._database.write_single(
            lambda connection: connection.execute(MOVE, values).rowcount > 0
        )

    async def expired(self, now: float, limit: int) -> list[CallRecord]:
        """Return open calls whose deadline has passed, the longest overdue first."""
        values = {"now": now, "most": limit}

        def work(connection: sa.Connection) -> list[CallRecord]:
            return [CallRecord(*row) for row in connection.execute(EXPIRED, values)]

        return await self._database.read(work)

    async def prune(self, before: float, limit: int) -> int:
        """Delete old calls that are over, and all that belongs to them."""
        values = {"before": before, "most": limit}
        return await self._database.write_single(
            lambda connection: connection.execute(PRUNE, values).rowcount
        )

    async def close(self) -> None:
        """Close the database."""
        await self._database.close()


def _row(call: CallRecord) -> dict[str, Any]:
    return {name: getattr(call, name) for name in CallRecord.__slots__}


def _call_to_row(call: CallRecord, owner: bytes, until: float) -> dict[str, Any]:
    """Return the row of a new call as the driver takes it, leased to ``owner``."""
    texts = ("call_id", "tool", "arguments", "principal")
    row = _row(call) | {name: to_bytes(getattr(call, name)) for name in texts}
    return {**row, "owner": owner, "leased_until": until}


def _row_to_call(row: Row) -> CallRecord:
    call_id, tool, arguments, started, deadline, status, principal = row
    texts = to_text(call_id), to_text(tool), to_text(arguments)
    return CallRecord(*texts, started, deadline, status, to_text(principal))


def _row_to_round(row: Row) -> RoundRecord | None:
    number, *texts = row
    return None if number is None else RoundRecord(number, *map(to_text, texts))


def _find(connection: sa.Connection, call_id: str) -> CallRecord | None:
    row = connection.execute(FIND, {"this": call_id}).one_or_none()
    return None if row is None else CallRecord(*row)


def _round(
    connection: sa.Connection, statement: sa.Select[int, str, str, str], values: Mapping[str, Any]
) -> RoundRecord | None:
    row = connection.execute(statement, values).one_or_none()
    return None if row is None else RoundRecord(*row)


@contextmanager
def _known(call_id: str) -> Generator[None]:
    """A foreign key that leads nowhere is a call that is not there."""
    try:
        yield
    except exc.IntegrityError as error:
        raise UnknownCallError(call_id) from error

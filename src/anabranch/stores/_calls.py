"""Calls in a database: the store behind the port :class:`~anabranch._durable.store.CallStore`.

It decides which statement is executed when, and what its outcome means. So that writers of one call do
not disturb each other:

- which one is first is decided by a unique key, never by reading before writing;
- a writer of entries locks the call's row first, so that the order of ids is the order of commits,
  and no two writers deadlock (on SQLite there is one writer anyway);
- a call's row changes only if it still is what the change assumes (``WHERE status = 'open'``);
- what only the owner of the lease may write has that as a condition of the same statement, or comes
  after one that has it and has locked the row.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc

from anabranch._durable.store import CallRecord, LeaseRecord, OpenedRound, RoundRecord
from anabranch.errors import StoreError, UnknownCallError
from anabranch.stores._call_rows import (
    call_row,
    entry_rows,
    round_row,
    to_call,
    to_entries,
    to_lease,
    to_round,
)
from anabranch.stores._call_tables import (
    ADD_POSTGRES,
    CALL,
    CALL_AND_ROUND,
    END,
    ENTRIES,
    ENTRY,
    EXPIRED,
    FIND,
    FINISH,
    LAST_ROUND,
    LEASE,
    LEASED,
    LOCK,
    MOVE,
    ONE_ENTRY,
    OPEN_CALLS,
    PRUNE,
    RELEASE,
    RENEW,
    ROUND,
    ROUND_NUMBER,
    SHORTEN,
    insert_first,
    listing,
)
from anabranch.stores._columns import to_bytes, to_text
from anabranch.stores._database import Database
from anabranch.stores._statements import Row, Statement

__all__ = ["Calls"]


class Calls:
    """Calls in a database. What each method promises is said at the port."""

    def __init__(self, database: Database) -> None:
        self._database = database
        dialect = database.dialect
        first = partial(insert_first, is_postgresql=database.is_postgresql)
        self._begin = Statement(first(CALL), dialect)
        self._find = Statement(FIND, dialect)
        self._insert_round = Statement(first(ROUND), dialect)
        self._insert_entry = Statement(first(ENTRY), dialect)
        self._insert_entries = Statement(ADD_POSTGRES, dialect)
        # SQLite has one writer, which does not need it.
        self._lock = Statement(LOCK, dialect) if database.is_postgresql else None
        self._lease, self._release = Statement(LEASE, dialect), Statement(RELEASE, dialect)
        self._leased, self._renew = Statement(LEASED, dialect), Statement(RENEW, dialect)
        self._shorten = Statement(SHORTEN, dialect)
        self._move, self._end = Statement(MOVE, dialect), Statement(END, dialect)
        self._finish = Statement(FINISH, dialect)
        self._call_and_round = Statement(CALL_AND_ROUND, dialect)
        self._round = Statement(ROUND_NUMBER, dialect)
        self._last_round = Statement(LAST_ROUND, dialect)
        self._entries = Statement(ENTRIES, dialect)
        self._entry = Statement(ONE_ENTRY, dialect)
        self._expired = Statement(EXPIRED, dialect)
        self._open_calls = Statement(OPEN_CALLS, dialect)
        self._prune = Statement(PRUNE, dialect)
        self._add = self._add_postgres if database.is_postgresql else self._add_sqlite

    async def begin(self, call: CallRecord) -> CallRecord:
        row, this = call_row(call), {"this": to_bytes(call.call_id)}

        def work(connection: sa.Connection) -> CallRecord:
            # The one that is there may be pruned before it is read; then this one is inserted.
            while not self._begin.count(connection, row):
                for found in self._find.rows(connection, this):
                    return to_call(found)
            return call

        return await self._database.write_single(work)

    async def find(self, call_id: str) -> CallRecord | None:
        found = await self._read(self._find, {"this": to_bytes(call_id)})
        return to_call(found[0]) if found else None

    async def calls(
        self,
        limit: int,
        *,
        tool: str | None = None,
        status: str | None = None,
        begins: str = "",
        recorded: str = "",
        after: CallRecord | None = None,
    ) -> list[CallRecord]:
        values: dict[str, Any] = {"most": limit}
        if tool is not None:
            values["tool"] = to_bytes(tool)
        if status is not None:
            values["status"] = status
        if begins:  # no byte of UTF-8 is 0xff
            values |= {"begins": to_bytes(begins), "beyond": to_bytes(begins) + b"\xff"}
        if recorded:
            values["recorded"] = to_bytes(recorded)
        if after is not None:
            values |= {"this": to_bytes(after.call_id), "begun": after.started}
        # Asked for by people, now and then: it need not be compiled in advance.
        page = Statement(listing(values), self._database.dialect)
        return list(map(to_call, await self._read(page, values)))

    async def leased(self, call_id: str) -> LeaseRecord | None:
        found = await self._read(self._leased, {"this": to_bytes(call_id)})
        return to_lease(found[0]) if found else None

    async def lease(self, call_id: str, owner: str, now: float, until: float) -> bool:
        this = to_bytes(call_id)
        values = {"this": this, "new_owner": to_bytes(owner), "now": now, "until": until}
        shorter = {"this": this, "until": until}

        def work(connection: sa.Connection) -> bool:
            if self._lease.count(connection, values):
                return True
            if self._shorten.count(connection, shorter):
                return False
            if not self._find.rows(connection, {"this": this}):
                raise UnknownCallError(call_id)
            return False

        return await self._database.write(work, lasting=False)

    async def renew(self, call_id: str, owner: str, until: float) -> bool:
        values = {"this": to_bytes(call_id), "old_owner": to_bytes(owner), "until": until}
        return await self._database.write(
            lambda connection: self._renew.count(connection, values) > 0, lasting=False
        )

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
        """See the port.

        The call's row is locked first, and every change of the call locks it, too: nothing comes
        between the reading and the lease.
        """
        this = to_bytes(call_id)
        which = {"this": this, "which": number}
        lease = {"this": this, "new_owner": to_bytes(owner), "now": now, "until": until}
        row = call_row(new, owner, until) if new is not None else {}

        def work(connection: sa.Connection) -> OpenedRound | None:
            while not (new is not None and self._begin.count(connection, row)):
                if self._lock is not None:
                    self._lock.rows(connection, {"this": this})
                for found in self._call_and_round.rows(connection, which):
                    call, ended = to_call(found[:9]), to_round(found[9:])
                    if ended is None and not self._lease.count(connection, lease):
                        self._shorten.count(connection, {"this": this, "until": until})
                        return None
                    return OpenedRound(
                        call, ended, to_entries(self._entries.rows(connection, which))
                    )
                if new is None:
                    raise UnknownCallError(call_id)
            return OpenedRound(new, None, {})

        # What a lease guards is written later; that a call has begun must last.
        return await self._database.write(work, lasting=new is not None)

    async def release(self, call_id: str, owner: str) -> None:
        values = {"this": to_bytes(call_id), "old_owner": to_bytes(owner)}
        await self._database.write(
            lambda connection: self._release.count(connection, values), lasting=False
        )

    async def record(
        self,
        call_id: str,
        number: int,
        entries: Mapping[str, str],
        *,
        owner: str | None = None,
    ) -> dict[str, str]:
        wanted = dict(entries)

        def work(connection: sa.Connection) -> dict[str, str]:
            added = self._add(connection, call_id, number, wanted, owner)
            return {
                step_id: text if step_id in added else self._text(connection, call_id, step_id)
                for step_id, text in wanted.items()
            }

        return await self._database.write_single(work)

    def _text(self, connection: sa.Connection, call_id: str, step_id: str) -> str:
        values = {"this": to_bytes(call_id), "step": to_bytes(step_id)}
        for (text,) in self._entry.rows(connection, values):
            return to_text(text)
        raise self._refusal(connection, call_id)

    def _refusal(self, connection: sa.Connection, call_id: str) -> StoreError:
        """Return why something could not be written: without its call, or without the lease."""
        if not self._find.rows(connection, {"this": to_bytes(call_id)}):
            return UnknownCallError(call_id)
        return StoreError(f"The lease on call {call_id!r} is another's by now. Try again.")

    def _add_sqlite(
        self,
        connection: sa.Connection,
        call_id: str,
        number: int,
        entries: Mapping[str, str],
        owner: str | None,
    ) -> set[str]:
        if owner is not None:  # there is one writer: the lease stays whose it is
            found = self._leased.rows(connection, {"this": to_bytes(call_id)})
            if [each for each, _ in found] != [to_bytes(owner)]:
                return set()
        rows = entry_rows(call_id, number, entries)
        with _known(call_id):
            return {
                step_id
                for step_id, row in zip(entries, rows, strict=True)
                if self._insert_entry.count(connection, row)
            }

    def _add_postgres(
        self,
        connection: sa.Connection,
        call_id: str,
        number: int,
        entries: Mapping[str, str],
        owner: str | None,
    ) -> set[str]:
        values = {
            "call_id": to_bytes(call_id),
            "old_owner": None if owner is None else to_bytes(owner),
            "number": number,
            "step_ids": [to_bytes(step_id) for step_id in entries],
            "texts": [to_bytes(text) for text in entries.values()],
        }
        return {to_text(step_id) for (step_id,) in self._insert_entries.rows(connection, values)}

    async def entries(self, call_id: str, number: int) -> dict[str, str]:
        values = {"this": to_bytes(call_id), "which": number}
        return to_entries(await self._read(self._entries, values))

    async def end_round(
        self,
        call_id: str,
        record: RoundRecord,
        *,
        deadline: float | None,
        status: str = "open",
        release: str | None = None,
    ) -> RoundRecord:
        this, row = to_bytes(call_id), round_row(call_id, record)
        move = {**_move(call_id, status, deadline), "new_asked": record.asked}

        def work(connection: sa.Connection) -> RoundRecord:
            if self._may_end(connection, this, release):
                with _known(call_id):
                    first = self._insert_round.count(connection, row)
                if first:
                    self._end.count(connection, move)
                    return record
            which = {"this": this, "which": record.number}
            for found in self._round.rows(connection, which):
                if (earlier := to_round(found)) is not None:
                    return earlier
            raise self._refusal(connection, call_id)

        return await self._database.write(work)

    def _may_end(self, connection: sa.Connection, this: bytes, release: str | None) -> bool:
        """Release the lease of ``release``; return whether it had it, or none is asked for.

        This comes first and locks the call's row, so that no other takes the lease meanwhile.
        """
        if release is None:
            return True
        return self._release.count(connection, {"this": this, "old_owner": to_bytes(release)}) > 0

    async def round(self, call_id: str, number: int) -> RoundRecord | None:
        """Return how a round ended, if it has."""
        found = await self._read(self._round, {"this": to_bytes(call_id), "which": number})
        return to_round(found[0]) if found else None

    async def last_round(self, call_id: str) -> RoundRecord | None:
        found = await self._read(self._last_round, {"this": to_bytes(call_id)})
        return to_round(found[0]) if found else None

    async def finish(
        self,
        call_id: str,
        status: str,
        *,
        deadline: float | None = None,
        version: str | None = None,
        owner: str | None = None,
    ) -> bool:
        values = _move(call_id, status, deadline, version)
        if owner is None:
            return await self._write_single(self._move, values) > 0
        return await self._write_single(self._finish, {**values, "old_owner": to_bytes(owner)}) > 0

    async def expired(self, now: float, limit: int) -> list[CallRecord]:
        return list(map(to_call, await self._read(self._expired, {"now": now, "most": limit})))

    async def open_calls(self) -> tuple[int, float | None, float | None]:
        [(number, first, asked)] = await self._read(self._open_calls, {})
        return number, first, asked

    async def prune(self, before: float, limit: int) -> int:
        return await self._write_single(self._prune, {"before": before, "most": limit})

    async def close(self) -> None:
        await self._database.close()

    async def _read(self, statement: Statement, values: Mapping[str, Any]) -> Sequence[Row]:
        return await self._database.read(lambda connection: statement.rows(connection, values))

    async def _write_single(self, statement: Statement, values: Mapping[str, Any]) -> int:
        return await self._database.write_single(
            lambda connection: statement.count(connection, values)
        )


def _move(
    call_id: str, status: str, deadline: float | None, version: str | None = None
) -> dict[str, Any]:
    """Return the values with which an open call is moved to ``status``."""
    return {
        "this": to_bytes(call_id),
        "new_status": status,
        "new_deadline": deadline,
        "new_version": None if version is None else to_bytes(version),
    }


@contextmanager
def _known(call_id: str) -> Generator[None]:
    """Raise :class:`UnknownCallError` for a foreign key without its call."""
    try:
        yield
    except exc.IntegrityError as error:
        raise UnknownCallError(call_id) from error

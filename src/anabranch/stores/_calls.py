"""Calls in a database: the store behind the port :class:`~anabranch._durable.CallStore`.

Three rules keep the writers of one call from disturbing each other:

- A unique key decides which writer is first; no writer reads before it writes.
- A writer locks the call's row before it writes entries and answers, so the order of ids is the
  order of commits. The end of a round and an undone step are one row each, inserted before any
  lock. So no two writers deadlock. (SQLite has one writer anyway.)
- One statement moves a call. The statement's condition names the states that the call may move
  from and, if only the owner of the lease may move the call, that owner.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc

from anabranch._durable import (
    TAKES_ANSWERS,
    AnswerRecord,
    CallEvent,
    CallRecord,
    CallState,
    LeaseRecord,
    OpenedRound,
    Processes,
    RoundRecord,
)
from anabranch.errors import StoreError, UnknownCallError
from anabranch.stores import _call_tables as sql
from anabranch.stores._call_rows import (
    answer_rows,
    call_row,
    digest_of,
    inbox_of,
    known_round,
    open_known,
    round_row,
    take,
    to_answer,
    to_call,
    to_entries,
    to_round,
    to_take,
    undone_steps,
)
from anabranch.stores._database import Database, InDatabase
from anabranch.stores._sql import to_bytes, to_text


class Calls(InDatabase):
    def __init__(self, database: Database, *, closes: bool = True) -> None:
        super().__init__(database, closes=closes)
        self.is_lasting: bool = database.is_shared
        self._add = self._add_postgres if database.is_postgresql else self._add_sqlite

    @property
    def processes(self) -> Processes:
        return self.database.processes

    # -- calls -------------------------------------------------------------------------------

    async def begin(self, call: CallRecord, *, after: RoundRecord | None = None) -> CallRecord:
        row, this = call_row(replace(call, lease=None)), {"this": to_bytes(call.call_id)}
        before = None if after is None else round_row(call.call_id, after)

        def work(connection: sa.Connection) -> CallRecord:
            # Another process may prune the stored call before the read; then this one is inserted.
            while not sql.INSERT_CALL.count(connection, row):
                for found in sql.FIND.rows(connection, this):
                    return to_call(found)
            if before is not None:
                sql.INSERT_ROUND.count(connection, before)
            return call

        return await self.database.write(work)

    async def find(self, call_id: str) -> CallRecord | None:
        found = await self._rows(sql.FIND, this=to_bytes(call_id))
        return to_call(found[0]) if found else None

    async def calls(
        self,
        limit: int,
        *,
        tool: str | None = None,
        states: Collection[CallState] | None = None,
        begins: str = "",
        after: CallRecord | None = None,
    ) -> list[CallRecord]:
        values: dict[str, Any] = {"most": limit}
        if tool is not None:
            values["tool"] = to_bytes(tool)
        if begins:  # UTF-8 has no byte 0xff
            values |= {"begins": to_bytes(begins), "beyond": to_bytes(begins) + b"\xff"}
        if after is not None:
            values |= {"this": to_bytes(after.call_id), "begun": after.started}
        listing = sql.listing(frozenset(values), None if states is None else frozenset(states))
        return list(map(to_call, await self._rows(listing, **values)))

    async def expired(self, now: float, limit: int) -> list[CallRecord]:
        return list(map(to_call, await self._rows(sql.EXPIRED, now=now, most=limit)))

    async def open_calls(self) -> tuple[int, float | None, float | None]:
        [(number, first, asked)] = await self._rows(sql.OPEN_CALLS)
        return number, first, asked

    async def prune(self, before: float, limit: int) -> int:
        return await self._count(sql.PRUNE, before=before, most=limit)

    # -- leases and states -------------------------------------------------------------------

    async def renew(self, call_id: str, owner: str, until: float) -> bool:
        values = _by_owner(call_id, owner, until=until)
        return await self.database.write(
            lambda connection: sql.RENEW.count(connection, values) > 0, lasting=False
        )

    async def release(self, call_id: str, owner: str) -> None:
        values, leave = _by_owner(call_id, owner, new_deadline=None), sql.MOVE[CallEvent.LEAVE]
        await self.database.write(lambda connection: leave.count(connection, values), lasting=False)

    def _leased(self, owner: str, until: float) -> dict[str, Any]:
        name = self.processes.name
        return {"new_owner": to_bytes(owner), "new_process": name, "until": until}

    def _leave(self, connection: sa.Connection, values: Mapping[str, Any]) -> bool:
        """Release the lease on a call, and free the answers in the inbox that its round had taken."""
        if not sql.MOVE[CallEvent.LEAVE].count(connection, values):
            return False
        this = {"this": values["this"]}
        sql.DROP_ANSWERS.count(connection, {**this, "client": b""})
        sql.RETURN_ANSWERS.count(connection, this)
        return True

    async def take_to_undo(
        self, call_id: str, owner: str, now: float, until: float, *, is_due: bool = True
    ) -> CallRecord | None:
        this = to_bytes(call_id)
        values = {"this": this, "now": now, **self._leased(owner, until)}
        due = {**values, "due": now if is_due else math.inf, "stops": not is_due}

        def work(connection: sa.Connection) -> CallRecord | None:
            if not sql.TAKE_TO_UNDO.count(connection, due):
                sql.SHORTEN.count(connection, values)
                return None
            return to_call(sql.FIND.rows(connection, {"this": this})[0])

        return await self.database.write(work, lasting=False)

    async def move(
        self, call_id: str, event: CallEvent, *, owner: str, deadline: float | None = None
    ) -> bool:
        values = _by_owner(call_id, owner, new_deadline=deadline)
        if event == CallEvent.LEAVE:
            return await self.database.write(lambda connection: self._leave(connection, values))
        return await self._count(sql.MOVE[event], **values) > 0

    async def fail(self, call_id: str, error: str, owner: str) -> bool:
        values = _by_owner(call_id, owner, error=to_bytes(error))
        return await self._count(sql.FAIL, **values) > 0

    async def adopt(self, call_id: str, version: str, owner: str) -> bool:
        values = _by_owner(call_id, owner, new_version=to_bytes(version))
        return await self._count(sql.ADOPT, **values) > 0

    async def hasten(self, call_id: str, deadline: float, state: CallState) -> bool:
        this = to_bytes(call_id)
        found = self._count(sql.HASTEN, this=this, in_state=str(state), new_deadline=deadline)
        return await found > 0

    # -- rounds ------------------------------------------------------------------------------

    async def open_round(
        self,
        call_id: str,
        number: int,
        owner: str,
        now: float,
        until: float,
        *,
        asks: Collection[str] = (),
        answers: Mapping[str, str] | None = None,
        new: CallRecord | None = None,
    ) -> OpenedRound | None:
        """Lock the call's row first, as every change does: no change comes between read and lease."""
        this, given = to_bytes(call_id), dict(answers or {})
        which = {"this": this, "which": number}
        lease = {**which, "now": now, **self._leased(owner, until)}

        row: dict[str, Any] = {}
        if new is not None:
            held = LeaseRecord(owner, until, self.processes.name)
            new = replace(new, state=CallState.RUNNING, asked=None, lease=held)
            row = {**call_row(new), "opened": number, "given": to_bytes(digest_of(given))}

        def work(connection: sa.Connection) -> OpenedRound | None:
            while not (new is not None and sql.INSERT_CALL.count(connection, row)):
                if self.database.is_postgresql:  # SQLite has one writer, so it needs no lock
                    sql.LOCK.rows(connection, {"this": this})
                for row_there in sql.CALL_AND_ROUND.rows(connection, which):
                    inbox = inbox_of(connection, this)
                    known = known_round(connection, row_there, which, inbox)
                    if known.ended is not None or not known.call.state.is_open:
                        return known
                    taken = to_take(known, inbox, asks, given)
                    if taken is None:
                        return known
                    return open_known(connection, known, lease, inbox, taken)
                if new is None:
                    raise UnknownCallError(call_id)
            take(connection, call_id, number, {}, given)
            return OpenedRound(new, None, {}, given, given=digest_of(given), is_leased=True)

        # A lease may be lost, since its work is written later; a new call and answers may not.
        return await self.database.write(work, lasting=new is not None or bool(given))

    async def end_round(
        self, call_id: str, record: RoundRecord, event: CallEvent, *, owner: str, deadline: float
    ) -> RoundRecord:
        which = {"this": to_bytes(call_id), "which": record.number}
        row = round_row(call_id, record)
        values = _by_owner(call_id, owner, new_deadline=deadline, new_asked=record.asked)

        def work(connection: sa.Connection) -> RoundRecord:
            with _known(call_id):
                is_first = sql.INSERT_ROUND.count(connection, row)
            if not is_first:
                return to_round(sql.ROUND_NUMBER.rows(connection, which)[0])
            if not sql.END[event].count(connection, values):
                raise StoreError(f"Another worker has the lease on call {call_id!r}. Try again.")
            return record

        return await self.database.write(work)

    async def round(self, call_id: str, number: int) -> RoundRecord | None:
        found = await self._rows(sql.ROUND_NUMBER, this=to_bytes(call_id), which=number)
        return to_round(found[0]) if found else None

    async def last_round(self, call_id: str) -> RoundRecord | None:
        found = await self._rows(sql.LAST_ROUND, this=to_bytes(call_id))
        return to_round(found[0]) if found else None

    # -- answers -----------------------------------------------------------------------------

    async def answer(
        self,
        call_id: str,
        answers: Mapping[str, str],
        *,
        by: str,
        deadline: float | None = None,
        now: float = -math.inf,
    ) -> dict[str, str] | None:
        this, rows = to_bytes(call_id), answer_rows(call_id, answers, by, None)

        def work(connection: sa.Connection) -> dict[str, str] | None:
            if self.database.is_postgresql:  # SQLite has one writer, so it needs no lock
                sql.LOCK.rows(connection, {"this": this})
            found = sql.FIND.rows(connection, {"this": this})
            if not found:
                raise UnknownCallError(call_id)
            call = to_call(found[0])
            if call.state not in TAKES_ANSWERS or call.deadline <= now:
                return None
            if deadline is not None:
                sql.POSTPONE.count(connection, {"this": this, "new_deadline": deadline})
            if rows:
                sql.INSERT_ANSWER.count(connection, *rows)
            inbox = inbox_of(connection, this)
            return {step: inbox[step].text for step in answers}

        return await self.database.write(work)

    async def answers(self, call_id: str) -> dict[str, AnswerRecord]:
        found = await self._rows(sql.ANSWERS, this=to_bytes(call_id))
        return dict(map(to_answer, found))

    # -- entries -----------------------------------------------------------------------------

    async def record(
        self, call_id: str, number: int, entries: Mapping[str, str], *, given: str = ""
    ) -> dict[str, str]:
        wanted, digest = dict(entries), to_bytes(given) if given else None

        def work(connection: sa.Connection) -> dict[str, str]:
            added = self._add(connection, call_id, number, wanted, digest)
            return {
                step_id: text if step_id in added else self._text(connection, call_id, step_id)
                for step_id, text in wanted.items()
            }

        return await self.database.write_single(work)

    def _text(self, connection: sa.Connection, call_id: str, step_id: str) -> str:
        values = {"this": to_bytes(call_id), "step": to_bytes(step_id)}
        for (text,) in sql.ONE_ENTRY.rows(connection, values):
            return to_text(text)
        if not sql.FIND.rows(connection, {"this": to_bytes(call_id)}):
            raise UnknownCallError(call_id)
        raise StoreError(
            f"Another worker has taken over call {call_id!r}, with other answers. Try again."
        )

    def _add_sqlite(
        self,
        connection: sa.Connection,
        call_id: str,
        number: int,
        entries: Mapping[str, str],
        given: bytes | None,
    ) -> set[str]:
        if given is not None:
            for opened, digest in sql.OPENED_WITH.rows(connection, {"this": to_bytes(call_id)}):
                if opened == number and digest != given:
                    return set()
        added: set[str] = set()
        round_ = {"call_id": to_bytes(call_id), "number": number}
        with _known(call_id):
            for step_id, text in entries.items():
                entry = {"step_id": to_bytes(step_id), "text": to_bytes(text)}
                if sql.INSERT_ENTRY.count(connection, {**round_, **entry}):
                    added.add(step_id)
        return added

    def _add_postgres(
        self,
        connection: sa.Connection,
        call_id: str,
        number: int,
        entries: Mapping[str, str],
        given: bytes | None,
    ) -> set[str]:
        values = {
            "call_id": to_bytes(call_id),
            "given": given,
            "number": number,
            "step_ids": [to_bytes(step_id) for step_id in entries],
            "texts": [to_bytes(text) for text in entries.values()],
        }
        return {to_text(step_id) for (step_id,) in sql.INSERT_ENTRIES.rows(connection, values)}

    async def entries(self, call_id: str, number: int) -> dict[str, str]:
        found = await self._rows(sql.ENTRIES, this=to_bytes(call_id), which=number)
        return to_entries(found)

    async def undone(self, call_id: str, step_id: str) -> None:
        row = {"call_id": to_bytes(call_id), "step_id": to_bytes(step_id)}

        def work(connection: sa.Connection) -> None:
            with _known(call_id):
                sql.INSERT_UNDONE.count(connection, row)

        await self.database.write_single(work)

    async def undone_steps(self, call_id: str) -> frozenset[str]:
        this = to_bytes(call_id)
        return await self.database.read(lambda connection: undone_steps(connection, this))


def _by_owner(call_id: str, owner: str, **changes: object) -> dict[str, Any]:
    return {"this": to_bytes(call_id), "old_owner": to_bytes(owner), **changes}


@contextmanager
def _known(call_id: str) -> Generator[None]:
    """Raise :class:`UnknownCallError` if the block writes a row of a call that does not exist."""
    try:
        yield
    except exc.IntegrityError as error:
        raise UnknownCallError(call_id) from error

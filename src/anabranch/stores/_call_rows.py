"""Calls, rounds, entries and answers as rows of their tables, and the opening of a round."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from hashlib import blake2b
from typing import Any

import sqlalchemy as sa

from anabranch._durable import (
    AnswerRecord,
    CallRecord,
    CallState,
    LeaseRecord,
    OpenedRound,
    RoundRecord,
)
from anabranch.stores import _call_tables as sql
from anabranch.stores._sql import Row, optional_bytes, optional_text, to_bytes, to_text

CALL_WIDTH = 16
"""The number of columns of a call, at the beginning of a row."""


def digest_of(answers: Mapping[str, str]) -> str:
    text = json.dumps(sorted(answers.items()))
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def call_row(call: CallRecord) -> dict[str, Any]:
    lease = call.lease
    return {
        "call_id": to_bytes(call.call_id),
        "tool": to_bytes(call.tool),
        "arguments": to_bytes(call.arguments),
        "started": call.started,
        "deadline": call.deadline,
        "state": str(call.state),
        "principal": to_bytes(call.principal),
        "thread": to_bytes(call.thread),
        "node": to_bytes(call.node),
        "version": to_bytes(call.version),
        "failure": optional_bytes(call.failure),
        "stopped": call.is_stopped,
        "asked": None,
        "owner": None if lease is None else to_bytes(lease.owner),
        "process": None if lease is None else lease.process,
        "leased_until": None if lease is None else lease.until,
        "opened": None,
        "given": None,
    }


def to_call(row: Row) -> CallRecord:
    call_id, tool, arguments, started, deadline, state = row[:6]
    principal, thread, node, version = map(to_text, row[6:10])
    failure, is_stopped, asked, owner, process, until = row[10:CALL_WIDTH]
    return CallRecord(
        to_text(call_id),
        to_text(tool),
        to_text(arguments),
        started,
        deadline,
        CallState(state),
        principal,
        thread,
        node,
        version,
        optional_text(failure),
        bool(is_stopped),
        asked,
        None if owner is None else LeaseRecord(to_text(owner), until, process),
    )


def round_row(call_id: str, record: RoundRecord) -> dict[str, Any]:
    return {
        "call_id": to_bytes(call_id),
        "number": record.number,
        "reply": to_bytes(record.reply),
        "state": to_bytes(record.state),
        "notes": to_bytes(record.notes),
    }


def to_round(row: Row) -> RoundRecord:
    number, reply, state, notes = row
    return RoundRecord(number, to_text(reply), to_text(state), to_text(notes))


def to_entries(rows: Iterable[Row]) -> dict[str, str]:
    return {to_text(step_id): to_text(text) for step_id, text in rows}


def answer_rows(
    call_id: str, answers: Mapping[str, str], by: str, number: int | None
) -> list[dict[str, Any]]:
    this, given_by = to_bytes(call_id), to_bytes(by)
    return [
        {
            "call_id": this,
            "step_id": to_bytes(step_id),
            "text": to_bytes(text),
            "by": given_by,
            "number": number,
        }
        for step_id, text in answers.items()
    ]


def to_answer(row: Row) -> tuple[str, AnswerRecord]:
    step_id, text, by, number = row
    return to_text(step_id), AnswerRecord(to_text(text), to_text(by), number)


# -- opening a round -------------------------------------------------------------------------


def known_round(
    connection: sa.Connection, row: Row, which: Mapping[str, Any], inbox: Mapping[str, AnswerRecord]
) -> OpenedRound:
    end, number = row[CALL_WIDTH:], which["which"]
    taken = {step: each for step, each in inbox.items() if each.round == number}
    return OpenedRound(
        to_call(row),
        None if end[0] is None else to_round(end),
        to_entries(sql.ENTRIES.rows(connection, which)),
        {step: each.text for step, each in taken.items()},
        _entered(taken),
    )


def open_known(
    connection: sa.Connection,
    known: OpenedRound,
    lease: Mapping[str, Any],
    inbox: Mapping[str, AnswerRecord],
    taken: Mapping[str, str],
) -> OpenedRound | None:
    """Take the lease for a stored round, if it is free; return the round with its answers."""
    digest, call = digest_of(taken), known.call
    if not sql.LEASE.count(connection, {**lease, "digest": to_bytes(digest)}):
        sql.SHORTEN.count(connection, lease)
        return None
    take(connection, call.call_id, lease["which"], inbox, taken)
    is_undoing = call.state == CallState.UNDOING  # in no other is anything undone
    undone = undone_steps(connection, lease["this"]) if is_undoing else frozenset[str]()
    found = {step: inbox[step] for step in taken if step in inbox}
    return replace(
        known, answers=taken, entered=_entered(found), undone=undone, given=digest, is_leased=True
    )


def inbox_of(connection: sa.Connection, this: bytes) -> dict[str, AnswerRecord]:
    return dict(map(to_answer, sql.ANSWERS.rows(connection, {"this": this})))


def take(
    connection: sa.Connection,
    call_id: str,
    number: int,
    inbox: Mapping[str, AnswerRecord],
    taken: Mapping[str, str],
) -> None:
    """Assign answers to a round; first store the answers that are not in the inbox yet."""
    new = {step: text for step, text in taken.items() if step not in inbox}
    there = [step for step in taken if step in inbox and inbox[step].round is None]
    if new:
        sql.INSERT_ANSWER.count(connection, *answer_rows(call_id, new, "", number))
    for step in there:
        values = {"this": to_bytes(call_id), "step": to_bytes(step), "which": number}
        sql.TAKE_ANSWERS.count(connection, values)


def undone_steps(connection: sa.Connection, this: bytes) -> frozenset[str]:
    found = sql.UNDONE_STEPS.rows(connection, {"this": this})
    return frozenset(to_text(step_id) for (step_id,) in found)


def to_take(
    known: OpenedRound,
    inbox: Mapping[str, AnswerRecord],
    asks: Collection[str],
    given: Mapping[str, str],
) -> Mapping[str, str] | None:
    """Return the answers for a round that opens; ``None`` if its client gave others before."""
    if known.entries or known.answers:
        return known.answers if known.was_given(given) else None
    there = {step: inbox[step] for step in (*asks, *given) if step in inbox}
    free = {step: each.text for step, each in there.items() if each.round is None}
    is_taken = any(step in there and step not in free for step in given)
    return None if is_taken else {**given, **free}


def _entered(answers: Mapping[str, AnswerRecord]) -> frozenset[str]:
    """Return the steps that a user answered on a page, and not the client."""
    return frozenset(step for step, each in answers.items() if each.by)

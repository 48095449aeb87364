"""Converts calls, rounds, entries and answers to rows of their tables, and rows to records."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any

from anabranch._durable.call_states import CallState
from anabranch._durable.store import AnswerRecord, CallRecord, LeaseRecord, RoundRecord
from anabranch.stores._sql import Row, optional_bytes, optional_text, to_bytes, to_text

CALL_WIDTH = 13
"""The number of columns of a call, at the beginning of a row."""


def digest_of(answers: Mapping[str, str]) -> str:
    """Return a digest of the answers of a round."""
    text = json.dumps(sorted(answers.items()))
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def call_row(
    call: CallRecord,
    state: CallState,
    owner: str | None = None,
    until: float | None = None,
) -> dict[str, Any]:
    """Return the row of a new call, leased to ``owner`` until ``until`` if ``owner`` is given."""
    return {
        "call_id": to_bytes(call.call_id),
        "tool": to_bytes(call.tool),
        "arguments": to_bytes(call.arguments),
        "started": call.started,
        "deadline": call.deadline,
        "state": str(state),
        "principal": to_bytes(call.principal),
        "version": to_bytes(call.version),
        "failure": optional_bytes(call.failure),
        "stopped": call.is_stopped,
        "asked": None,
        "owner": optional_bytes(owner),
        "leased_until": until,
        "opened": None,
        "given": None,
    }


def to_call(row: Row) -> CallRecord:
    """Return the call at the beginning of a row."""
    call_id, tool, arguments, started, deadline, state, principal, version = row[:8]
    failure, is_stopped, asked, owner, until = row[8:CALL_WIDTH]
    return CallRecord(
        to_text(call_id),
        to_text(tool),
        to_text(arguments),
        started,
        deadline,
        CallState(state),
        to_text(principal),
        to_text(version),
        optional_text(failure),
        bool(is_stopped),
        asked,
        None if owner is None else LeaseRecord(to_text(owner), until),
    )


def round_row(call_id: str, record: RoundRecord) -> dict[str, Any]:
    """Return the row of a finished round."""
    return {
        "call_id": to_bytes(call_id),
        "number": record.number,
        "reply": to_bytes(record.reply),
        "state": to_bytes(record.state),
        "notes": to_bytes(record.notes),
    }


def to_round(row: Row) -> RoundRecord:
    """Return the round in a row."""
    number, reply, state, notes = row
    return RoundRecord(number, to_text(reply), to_text(state), to_text(notes))


def entry_rows(call_id: str, number: int, entries: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return one row for each entry of a round."""
    this = to_bytes(call_id)
    return [
        {"call_id": this, "number": number, "step_id": to_bytes(step_id), "text": to_bytes(text)}
        for step_id, text in entries.items()
    ]


def to_entries(rows: Iterable[Row]) -> dict[str, str]:
    """Return the entries in rows of a step id and a text."""
    return {to_text(step_id): to_text(text) for step_id, text in rows}


def answer_rows(
    call_id: str, answers: Mapping[str, str], by: str, number: int | None
) -> list[dict[str, Any]]:
    """Return one row for each answer."""
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
    """Return the step and the answer in a row."""
    step_id, text, by, number = row
    return to_text(step_id), AnswerRecord(to_text(text), to_text(by), number)

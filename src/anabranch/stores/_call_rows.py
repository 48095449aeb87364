"""Calls, rounds and entries as rows of their tables, and rows as records, as the driver has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from anabranch._durable.store import CallRecord, LeaseRecord, RoundRecord
from anabranch.stores._columns import to_bytes, to_text
from anabranch.stores._statements import Row

__all__ = ["call_row", "entry_rows", "round_row", "to_call", "to_entries", "to_lease", "to_round"]


def call_row(
    call: CallRecord, owner: str | None = None, until: float | None = None
) -> dict[str, Any]:
    """Return the row of a new call, leased to ``owner`` until ``until`` if there is one."""
    return {
        "call_id": to_bytes(call.call_id),
        "tool": to_bytes(call.tool),
        "arguments": to_bytes(call.arguments),
        "started": call.started,
        "deadline": call.deadline,
        "status": call.status,
        "principal": to_bytes(call.principal),
        "version": to_bytes(call.version),
        "owner": None if owner is None else to_bytes(owner),
        "leased_until": until,
        "asked": None,
    }


def to_call(row: Row) -> CallRecord:
    """Return the call in a row."""
    call_id, tool, arguments, started, deadline, status, principal, version, asked = row
    texts = to_text(call_id), to_text(tool), to_text(arguments)
    names = to_text(principal), to_text(version or b"")
    return CallRecord(*texts, started, deadline, status, *names, asked)


def round_row(call_id: str, record: RoundRecord) -> dict[str, Any]:
    """Return the row of a round that has ended."""
    return {
        "call_id": to_bytes(call_id),
        "number": record.number,
        "answers": to_bytes(record.answers),
        "reply": to_bytes(record.reply),
        "state": to_bytes(record.state),
        "notes": to_bytes(record.notes),
    }


def to_round(row: Row) -> RoundRecord | None:
    """Return the round in a row; ``None`` if the row holds none."""
    number, answers, reply, state, notes = row
    if number is None:
        return None
    return RoundRecord(
        number, to_text(answers), to_text(reply), to_text(state), to_text(notes or b"")
    )


def to_lease(row: Row) -> LeaseRecord | None:
    """Return the lease in a row; ``None`` if the call has none."""
    owner, until = row
    return None if owner is None else LeaseRecord(to_text(owner), until)


def entry_rows(call_id: str, number: int, entries: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return a row for each entry of a round."""
    this = to_bytes(call_id)
    return [
        {"call_id": this, "number": number, "step_id": to_bytes(step_id), "text": to_bytes(text)}
        for step_id, text in entries.items()
    ]


def to_entries(rows: Iterable[Row]) -> dict[str, str]:
    """Return the entries in rows of a step's id and its text."""
    return {to_text(step_id): to_text(text) for step_id, text in rows}

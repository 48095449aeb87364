"""Finds calls with unfinished compensations, and brings their next attempt forward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from anabranch._durable.store import CallRecord, CallStore
from anabranch._durable.transitions import CallState

_State: TypeAlias = Literal["undoing", "undos left", "expired"]


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A call whose compensations still have to run.

    ``undos left`` means that some have failed or were cut off; ``expired``, that none has run.
    ``due`` is the time of the next attempt. The process that undoes needs the ``tool``, and code of
    ``version`` or code that takes the same way.
    """

    call: str
    tool: str
    state: _State
    due: float
    version: str = ""


async def unfinished(store: CallStore, now: float, limit: int) -> list[Unfinished]:
    """Return the failed and the expired calls with undos to run, at most ``limit`` of each kind."""
    failed = await store.calls(limit, states=[CallState.UNDOING])
    expired = await store.expired(now, limit)
    found = {record.call_id: record for record in (*failed, *expired)}
    return [
        Unfinished(
            record.call_id, record.tool, _state_of(record, now), record.deadline, record.version
        )
        for record in found.values()
    ]


async def undo_again(store: CallStore, call_id: str, now: float) -> bool:
    """Have the next server that looks, and has the call's tool, run the remaining undos.

    Return false if there is nothing to undo, or a process is undoing now: no other call is ended.
    """
    record = await store.find(call_id)
    if record is None or _is_leased(record, now):
        return False
    if record.state == CallState.UNDOING:
        await store.hasten(call_id, now, record.state)
        return True
    return record.state.is_open and record.deadline <= now


def _state_of(record: CallRecord, now: float) -> _State:
    if _is_leased(record, now):
        return "undoing"
    return "undos left" if record.state == CallState.UNDOING else "expired"


def _is_leased(record: CallRecord, now: float) -> bool:
    return record.lease is not None and record.lease.until > now

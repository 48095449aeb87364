"""Calls that a server has still to undo: their undos were tried in vain or cut off, or they have expired.

A process that has the call's tool runs undos, when the call's deadline has passed (``expiry.py``). What
is here needs no tool: it finds such calls in the store, and brings their deadlines forward.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from anabranch._durable.call_states import CallState
from anabranch._durable.store import CallRecord, CallStore

_State: TypeAlias = Literal["undoing", "undos left", "expired"]


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A call that is to be undone.

    Attributes:
        call: its name.
        tool: the tool, which the process must have that undoes it.
        state: ``undoing`` while a process runs its undos; ``undos left`` of those that were tried
            in vain, or were cut off; ``expired`` if none was tried yet.
        due: when the next attempt is made, seconds since the epoch.
        version: that of the code which has begun it: the process must have this, or code that takes
            the same way; empty if it is not known.
    """

    call: str
    tool: str
    state: _State
    due: float
    version: str = ""


async def unfinished(store: CallStore, now: float, limit: int) -> list[Unfinished]:
    """Return the calls that are to be undone, at most so many of each kind.

    Raises:
        StoreError: if the store failed.
    """
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
    """Have a server with the call's tool run the undos that are left when it next looks for such calls.

    False if there is nothing to undo, or a process is at it: no other call is ended.

    Raises:
        StoreError: if the store failed.
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

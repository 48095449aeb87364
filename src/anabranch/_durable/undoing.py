"""Calls that a server has still to undo: their undos were tried in vain or cut off, or they have expired.

A process that has the call's tool runs undos, when the call's deadline has passed (``expiry.py``). What
is here needs no tool: it finds such calls in the store, and brings their deadlines forward.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Literal, TypeAlias

from anabranch._durable.entries import FAILED
from anabranch._durable.states import latest_number
from anabranch._durable.store import CallRecord, CallStore

__all__ = ["Unfinished", "undo_again", "unfinished"]

LOOKING = 15.0
"""Seconds for which the lease on a call is taken, to look at it and to move its deadline."""

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
        StoreError: the store failed.
    """
    failed = await store.calls(limit, status="open", recorded=FAILED)
    expired = await store.expired(now, limit)
    found = {record.call_id: record for record in (*failed, *expired)}
    known = {record.call_id for record in failed}
    return [
        Unfinished(
            record.call_id,
            record.tool,
            await _state_of(store, record, now, has_failed=record.call_id in known),
            record.deadline,
            record.version,
        )
        for record in found.values()
    ]


async def undo_again(store: CallStore, call_id: str, now: float) -> bool:
    """Have a server with the call's tool run the undos that are left when it next looks for such calls.

    False if there is nothing to undo, or a process is at it: no other call is ended.

    Raises:
        StoreError: the store failed.
    """
    if await store.find(call_id) is None or await _is_leased(store, call_id, now):
        return False
    owner = f"undo.{secrets.token_hex(8)}"
    if not await store.lease(call_id, owner, now, now + LOOKING):
        return False
    try:
        return await _undo_again(store, call_id, owner, now)
    finally:
        await store.release(call_id, owner)


async def _undo_again(store: CallStore, call_id: str, owner: str, now: float) -> bool:
    record = await store.find(call_id)
    entries = await store.entries(call_id, await latest_number(store, call_id))
    if record is None or (FAILED not in entries and record.deadline > now):
        return False
    return await store.finish(call_id, "open", deadline=min(now, record.deadline), owner=owner)


async def _state_of(
    store: CallStore, record: CallRecord, now: float, *, has_failed: bool
) -> _State:
    if await _is_leased(store, record.call_id, now):
        return "undoing"
    return "undos left" if has_failed else "expired"


async def _is_leased(store: CallStore, call_id: str, now: float) -> bool:
    lease = await store.leased(call_id)
    return lease is not None and lease.until > now

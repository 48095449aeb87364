"""Finds recorded calls, by name or because their compensations are unfinished, without reading rounds.

The next attempt of unfinished compensations can be brought forward.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from anabranch._durable.store import CallRecord, CallStore
from anabranch._durable.transitions import CallState

if TYPE_CHECKING:
    from anabranch._durable.recorded.steps import Listed  # loads the engine

SHOWN = 5
"""Maximum calls that an error names."""


class NoSuchCallError(LookupError):
    """A name matches no call, or several."""


class AmbiguousCallError(NoSuchCallError):
    """A name matches several calls."""


async def find_call(store: CallStore, name: str) -> CallRecord:
    """Return the call whose id is, or begins with, ``name``, without ``call_``, or the ``last`` call.

    Raises:
        NoSuchCallError: if no call, or several, match.
    """
    if not name:
        raise NoSuchCallError("The name of the call is empty. Give an id from the list of calls.")
    if name == "last" and (latest := await store.calls(1)):
        return latest[0]
    for begins in (name, f"call_{name}"):
        if (exact := await store.find(begins)) is not None:
            return exact
        found = await store.calls(SHOWN + 1, begins=begins)
        if len(found) == 1:
            return found[0]
        if found:
            names = ", ".join(each.call_id for each in found[:SHOWN])
            more = ", …" if len(found) > SHOWN else ""
            raise AmbiguousCallError(
                f"{name!r} is the beginning of several calls: {names}{more}. Type more of the name."
            )
    raise NoSuchCallError(f"The store has no call {name!r}; it never started, or was deleted.")


def listed(record: CallRecord) -> Listed:
    from anabranch._durable.recorded.steps import Listed  # noqa: PLC0415 - loads the engine

    return Listed(
        id=record.call_id,
        tool=record.tool,
        state=record.state,
        started=record.started,
        deadline=record.deadline,
        principal=record.principal,
        version=record.version,
    )


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

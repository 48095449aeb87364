"""Recorded calls by name, and as a list has them; nothing is read of their rounds."""

from __future__ import annotations

from anabranch._durable.store import CallRecord, CallStore
from anabranch._recorded.shapes import Listed

LATEST = "last"
_PREFIX = "call_"
SHOWN = 5


class NoSuchCallError(LookupError):
    """A name stands for no call, or for several."""


class AmbiguousCallError(NoSuchCallError):
    """A name stands for several calls."""


async def find_call(store: CallStore, name: str) -> CallRecord:
    """Return the call whose name is, or begins with, ``name``, with ``call_`` or without.

    ``last`` is the one that was begun last.

    Raises:
        NoSuchCallError: there is none, or there are several.
        StoreError: the store failed.
    """
    if not name:
        raise NoSuchCallError("The name of a call is empty; the list of calls has the names.")
    if name == LATEST and (latest := await store.calls(1)):
        return latest[0]
    for begins in (name, _PREFIX + name):
        if (exact := await store.find(begins)) is not None:
            return exact
        found = await store.calls(SHOWN + 1, begins=begins)
        if len(found) == 1:
            return found[0]
        if found:
            names = ", ".join(each.call_id for each in found[:SHOWN])
            more = ", …" if len(found) > SHOWN else ""
            raise AmbiguousCallError(
                f"{name!r} is the beginning of several calls: {names}{more}. Type more of it."
            )
    raise NoSuchCallError(f"The store has no call {name!r}; it was never begun, or was deleted.")


def listed(record: CallRecord) -> Listed:
    """Return a call as a list has it."""
    return Listed(
        id=record.call_id,
        tool=record.tool,
        state=record.state,
        started=record.started,
        deadline=record.deadline,
        principal=record.principal,
        version=record.version,
    )

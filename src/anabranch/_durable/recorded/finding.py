"""Finds recorded calls by name, and returns them as list entries, without reading rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch._durable.store import CallRecord, CallStore

if TYPE_CHECKING:
    from anabranch._durable.recorded.shapes import Listed  # loads the engine

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
    from anabranch._durable.recorded.shapes import Listed  # noqa: PLC0415 - loads the engine

    return Listed(
        id=record.call_id,
        tool=record.tool,
        state=record.state,
        started=record.started,
        deadline=record.deadline,
        principal=record.principal,
        version=record.version,
    )

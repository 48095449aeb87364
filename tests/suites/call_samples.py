"""Sample calls in each state, and the types of the checks for stores of calls."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeAlias

from anabranch._durable import CallRecord, OpenedRound, RoundRecord
from anabranch.stores import CallStore

OpenCallStore: TypeAlias = Callable[[], CallStore]
"""Opens a store of calls."""

CallStoreCheck: TypeAlias = Callable[[OpenCallStore], Awaitable[None]]
"""Checks one promise; raises ``AssertionError`` if it is broken."""


def a_call(call_id: str = "call_1", **changes: Any) -> CallRecord:
    """Return a ready call that began at 100 and expires at 200, with ``changes``."""
    call = CallRecord(call_id, "pick_card", '{"count": 5}', 100.0, 200.0)
    place = {"principal": "somebody", "thread": "talk", "node": "n1", "version": "1"}
    return replace(call, **place | changes)


def an_end(number: int = 0, **changes: Any) -> RoundRecord:
    """Return the end of a round that asked a question."""
    return replace(RoundRecord(number, f"reply {number}", f"state {number}"), **changes)


async def begun(store: CallStore, call_id: str = "call_1", **changes: Any) -> CallRecord:
    return await store.begin(a_call(call_id, **changes))


async def run(
    store: CallStore, call_id: str = "call_1", number: int = 0, owner: str = "a"
) -> OpenedRound | None:
    """Open a round from 100 to 110."""
    return await store.open_round(call_id, number, owner, 100.0, 110.0)

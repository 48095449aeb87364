"""Sample calls, and the types of checks of a store of calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeAlias

from anabranch._durable.store import CallRecord, CallStore

__all__ = ["CallStoreCheck", "OpenCallStore", "a_call"]

OpenCallStore: TypeAlias = Callable[[], CallStore]
"""Opens a store of calls."""

CallStoreCheck: TypeAlias = Callable[[OpenCallStore], Awaitable[None]]
"""Checks one promise; raises ``AssertionError`` if it is broken."""


def a_call(call_id: str = "call_1", **changes: Any) -> CallRecord:  # noqa: ANN401  # fields
    """Return an open call that began at 100 and expires at 200, but for ``changes``."""
    call = CallRecord(call_id, "pick_card", '{"count": 5}', 100.0, 200.0, principal="somebody")
    return replace(call, **changes)

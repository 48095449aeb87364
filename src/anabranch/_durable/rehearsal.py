"""Runs a tool over a recorded call, to see whether the present code repeats the record.

The engine replays the call and does nothing new, so only code outside of steps has effects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from anabranch._aio import Timer
from anabranch._asking import Host
from anabranch._engine import Call, Finished, Journal, Stopped, discard
from anabranch.errors import NonDeterminismError, SerializationError
from anabranch.tool import Runtime, Tool, open_call

Rehearsed: TypeAlias = Finished[Any] | Stopped | Exception


class _Standing:
    """A clock that stands still, so that no deadline passes in a rehearsal."""

    def __init__(self, now: float) -> None:
        self._now = now

    def now(self) -> float:
        return self._now

    def call_at(self, when: float, callback: object) -> Timer:
        del when, callback
        return self

    def cancel(self) -> None:
        """Do nothing, because this clock calls no callback."""


async def rehearse(
    tool: Tool[Any],
    arguments: Mapping[str, Any],
    journal: Journal,
    runtime: Runtime,
    host: Host | None = None,
) -> Rehearsed:
    """Return the end of ``tool``, or the place where it stops, over ``journal``, which it consumes."""

    def abort(fault: Exception) -> None:
        call.abort(fault)

    journal.compensations = []  # a rehearsal has nothing to undo
    call: Call[Any] = open_call(
        tool,
        arguments,
        journal,
        host=host or Host(),
        runtime=replace(runtime, clock=_Standing(journal.started)),
        sink=discard,
        make=partial(Call[Any], on_fault=abort),
    )
    try:
        async with call:
            return await call.replay()
    except Exception as error:  # noqa: BLE001 - any exception of the tool is its outcome
        return error


async def fits(
    tool: Tool[Any], arguments: Mapping[str, Any], journal: Journal, runtime: Runtime, host: Host
) -> bool:
    """Return whether ``tool`` reaches and reads all entries of ``journal``."""
    copy = Journal.loads(journal.dumps())
    copy.unread = {*journal.unread}
    outcome = await rehearse(tool, arguments, copy, runtime, host)
    return not isinstance(outcome, NonDeterminismError | SerializationError)

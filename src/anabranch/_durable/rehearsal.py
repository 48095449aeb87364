"""Runs a recorded call with the present code, and reports the first place where the two differ.

The engine replays the call and does nothing new, so only code outside of steps has effects.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict

from anabranch._aio import Timer
from anabranch._asking import Host
from anabranch._durable.entries import load_answers, load_notes, merge
from anabranch._durable.recorded.steps import error_text
from anabranch._durable.states import latest_journal
from anabranch._durable.store import CallRecord, CallStore, RoundRecord
from anabranch._engine import LENGTH, MARKER, Call, Finished, Journal, Stopped, codec_of, discard
from anabranch._text import json_line
from anabranch.errors import (
    AnabranchError,
    ContextUseError,
    InvalidArgumentsError,
    NonDeterminismError,
    SerializationError,
    error_to_json,
)
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


SHOWN = 200
"""Maximum characters of a value in a drift."""


_GONE = (
    "the store no longer has the call's conversation, which the tool reads; without it, the call"
    " takes another way"
)


class Drift(BaseModel):
    """The first difference of a replay: at a step, or at ``tool``, ``arguments`` or ``result``."""

    model_config = ConfigDict(frozen=True)

    at: str
    recorded: str
    now: str


class Replayed(BaseModel):
    """The outcome of a replay.

    ``not_reached`` are open questions that the present code does not come to, or only after ``next``.
    ``old_ways`` are the markers (``ctx.patched``) at which the call runs the old code.
    """

    model_config = ConfigDict(frozen=True)

    id: str
    tool: str
    version: str = ""
    ended: Literal["waits", "ended", "continues", "drifts", "cannot be read"]
    next: list[str] = []
    reworded: list[str] = []
    not_reached: list[str] = []
    old_ways: list[str] = []
    drift: Drift | None = None
    problem: str | None = None

    @property
    def is_clean(self) -> bool:
        """Whether the present code can continue the call, or ends it as the record does."""
        return self.ended in {"waits", "ended", "continues"}


def without_tool(record: CallRecord, now: str) -> Replayed:
    """Return the outcome for a call whose tool is gone or renamed; ``now`` says which."""
    drift = Drift(at="tool", recorded=record.tool, now=now)
    return Replayed(
        id=record.call_id, tool=record.tool, version=record.version, ended="drifts", drift=drift
    )


async def replay_call(
    store: CallStore,
    record: CallRecord,
    tool: Tool[Any],
    runtime: Runtime | None = Runtime(),  # noqa: B008 - a Runtime is frozen
) -> Replayed:
    """Replay a recorded call with ``tool``, and compare the replay with the record.

    ``runtime`` has the conversation that the call came from, which the tool may read; ``None`` if the
    conversation is gone.
    """
    last = await store.last_round(record.call_id)
    found = partial(Replayed, id=record.call_id, tool=record.tool, version=record.version)
    try:
        journal = await _recorded(store, record, last)
        arguments = tool.validate(json.loads(record.arguments))
    except InvalidArgumentsError as refused:
        refusal = Drift(at="arguments", recorded=_short(record.arguments), now=str(refused))
        return found(ended="drifts", drift=refusal)
    except ValueError as problem:
        return found(ended="cannot be read", problem=str(problem))
    waits_for = list(journal.pending)
    outcome = await rehearse(tool, arguments, journal, runtime or Runtime())
    end = last if last is not None and not last.state and not waits_for else None
    found = partial(found, old_ways=_old_ways(journal))
    if (drift := _drift(tool, end, outcome)) is not None:
        if runtime is None:
            return found(ended="cannot be read", problem=_GONE)
        return found(ended="drifts", drift=drift)
    if end is not None:
        return found(ended="ended")
    following = outcome.at if isinstance(outcome, Stopped) else ()
    asked = [each for each in following if each in waits_for]
    new = [each for each in following if each not in waits_for]
    return found(
        ended="waits" if asked else "continues",
        next=[*asked, *new],
        reworded=[each for each in asked if each not in journal.pending],  # the call withdrew it
        not_reached=[each for each in waits_for if each not in asked],
    )


def _old_ways(journal: Journal) -> list[str]:
    markers = (each for each in journal.entries.items() if each[1].kind == MARKER)
    return [step_id.removeprefix(f"{MARKER}#") for step_id, entry in markers if not entry.value]


async def _recorded(store: CallStore, record: CallRecord, last: RoundRecord | None) -> Journal:
    """Return the journal of a call up to its wait, its interruption or its end."""
    journal = await latest_journal(store, record)
    if last is not None and not last.state:
        inbox = await store.answers(record.call_id)
        given = {step: each.text for step, each in inbox.items() if each.round == last.number}
        journal.answer(load_answers(given))
        merge(journal, await store.entries(record.call_id, last.number))
        merge(journal, load_notes(last.notes).entries)
        journal.unread.clear()  # the body read them, and ended
    return journal


OF_KIND = {
    "step": "another function or arguments",
    "sample": "another request",
    "elicit": "another message, form or context",
    "url": "another message or URL",
    "sleep": "another time",
}
"""The possible difference of a step whose kind stays the same, since the record keeps only a digest."""


def _drift(tool: Tool[Any], end: RoundRecord | None, outcome: Rehearsed) -> Drift | None:
    """Return the first difference from the record, or ``None``; ``end`` is the last round."""
    if isinstance(outcome, NonDeterminismError) and not isinstance(outcome, ContextUseError):
        recorded, now = _kind(outcome.expected), _kind(outcome.found)
        return Drift(
            at=outcome.step_id,
            recorded=recorded,
            now=now if now != recorded else f"{now} with {OF_KIND.get(now, 'other values')}",
        )
    if end is not None:
        return _drift_at_end(tool, json.loads(end.reply), outcome)
    if isinstance(outcome, Exception):
        now = _present_end(tool, outcome)
        return Drift(at="result", recorded="the call is open", now=now)
    return None


def _drift_at_end(tool: Tool[Any], reply: dict[str, Any], outcome: Rehearsed) -> Drift | None:
    recorded, now = _recorded_end(reply), _present_end(tool, outcome)
    if isinstance(outcome, Stopped):
        return Drift(at=outcome.at[0] if outcome.at else "result", recorded=recorded, now=now)
    if isinstance(outcome, Finished):
        same = "error" not in reply and "foreign" not in reply
        same = same and ("value" not in reply or reply["value"] == _encoded(tool, outcome.value))
    elif "error" in reply and reply["error"] is not None:
        same = error_to_json(outcome) == reply["error"]
    else:  # the record lacks its text
        same = bool(reply.keys() & {"error", "foreign"}) and not isinstance(outcome, AnabranchError)
    return None if same else Drift(at="result", recorded=recorded, now=now)


def _recorded_end(reply: dict[str, Any]) -> str:
    if "foreign" in reply:
        return f"failed: {_short(str(reply['foreign'].get('message')))}"
    if "error" in reply:
        return f"failed: {_short(error_text(reply['error']))}"
    return f"returned {_short(json_line(reply.get('value')))}"


def _present_end(tool: Tool[Any], outcome: Rehearsed) -> str:
    if isinstance(outcome, Finished):
        return f"returns {_short(json_line(_encoded(tool, outcome.value)))}"
    if isinstance(outcome, Stopped):
        return "continues" + (f" with {', '.join(outcome.at)}" if outcome.at else "")
    said = f"{type(outcome).__name__}: {outcome}"
    # The sentence of a ContextUseError ends with the remedy.
    return f"raises {said if isinstance(outcome, ContextUseError) else _short(said)}"


def _encoded(tool: Tool[Any], value: object) -> Any:  # noqa: ANN401 - JSON
    try:
        return codec_of(tool.returned_by).encode(tool.name, value)
    except SerializationError:
        return None


def _kind(recorded: str) -> str:
    kind, _, asked = recorded.partition(" ")
    return kind if len(asked) == LENGTH and " " not in asked else recorded


def _short(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"

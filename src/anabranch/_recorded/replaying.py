"""The rehearsal of a recorded call with the present code, for the place where the two differ."""

from __future__ import annotations

import json
from functools import partial
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from anabranch._durable.entries import load_answers, load_notes, merge
from anabranch._durable.rehearsal import Rehearsed, rehearse
from anabranch._durable.states import latest_journal
from anabranch._durable.store import CallRecord, CallStore, RoundRecord
from anabranch._engine import MARKER, Finished, Journal, Stopped, codec_of
from anabranch._engine.pinning import LENGTH
from anabranch._recorded.steps import error_text
from anabranch.errors import (
    AnabranchError,
    InvalidArgumentsError,
    NonDeterminismError,
    SerializationError,
    error_to_json,
)
from anabranch.tool import Runtime, Tool

SHOWN = 200
"""The most characters of a value in a drift."""


_GONE = (
    "the conversation that the call came from is no longer in the store, and without what the tool"
    " reads of it, the call takes another way"
)


class Drift(BaseModel):
    """Where a replay differs from the record: at which step, or at ``tool``, ``arguments`` or ``result``."""

    model_config = ConfigDict(frozen=True)

    at: str
    recorded: str
    now: str


class Replayed(BaseModel):
    """What a replay has found.

    Attributes:
        id, tool: the call.
        version: that of the code which has begun it, if it is known.
        ended: how: it ``waits``, as recorded; it ``ended``, as recorded; it ``goes on`` with what is
            next; it ``drifts``; or it ``cannot be read``: another release has written it, or
            what it read of its conversation is gone.
        next: the steps that come next: open questions first.
        reworded: those of the open questions that the present code asks in other words.
        old_ways: the markers (``ctx.patched``) at which the call takes the old way.
        drift: where it differs.
        problem: why it cannot be read, or compared.
    """

    model_config = ConfigDict(frozen=True)

    id: str
    tool: str
    version: str = ""
    ended: Literal["waits", "ended", "goes on", "drifts", "cannot be read"]
    next: list[str] = []
    reworded: list[str] = []
    old_ways: list[str] = []
    drift: Drift | None = None
    problem: str | None = None

    @property
    def is_clean(self) -> bool:
        """Whether the present code can continue the call, or has done the same."""
        return self.ended in {"waits", "ended", "goes on"}


def without_tool(record: CallRecord, now: str) -> Replayed:
    """Return what a replay finds where the tool of a call is gone, or has another name; ``now`` says so."""
    drift = Drift(at="tool", recorded=record.tool, now=now)
    return Replayed(
        id=record.call_id, tool=record.tool, version=record.version, ended="drifts", drift=drift
    )


async def replay_call(
    store: CallStore,
    record: CallRecord,
    tool: Tool[Any],
    runtime: Runtime | None = Runtime(),  # noqa: B008 - it is frozen
) -> Replayed:
    """Run a recorded call of ``tool`` over its record, and compare.

    Args:
        store: has the record.
        record: the call.
        tool: the tool as it is now.
        runtime: the conversation that the call came from; ``None`` if that is gone. Without it, a
            difference may be due to what the tool reads of it, and is none that can be reported.

    Raises:
        StoreError: if the store failed.
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
    waits_for = set(journal.pending)
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
    reworded = [each for each in asked if each not in journal.pending]  # that was withdrawn
    return found(ended="waits" if asked else "goes on", next=[*asked, *new], reworded=reworded)


def _old_ways(journal: Journal) -> list[str]:
    markers = (each for each in journal.entries.items() if each[1].kind == MARKER)
    return [step_id.removeprefix(f"{MARKER}#") for step_id, entry in markers if not entry.value]


async def _recorded(store: CallStore, record: CallRecord, last: RoundRecord | None) -> Journal:
    """Return the journal of a call up to where it waits, was interrupted, or has ended.

    Raises:
        ValueError: if another release has written it.
    """
    journal = await latest_journal(store, record)
    if last is not None and not last.state:
        inbox = await store.answers(record.call_id)
        given = {step: each.text for step, each in inbox.items() if each.round == last.number}
        journal.answer(load_answers(given))
        merge(journal, await store.entries(record.call_id, last.number))
        merge(journal, load_notes(last.notes).entries)
        journal.unread.clear()  # the body has read them, and has ended
    return journal


OF_KIND = {
    "step": "another function or arguments",
    "sample": "another request",
    "elicit": "another message, form or context",
    "url": "another message or URL",
    "sleep": "another time",
}
"""What may be other where the same is done as is recorded, of which the record has no more than a digest."""


def _drift(tool: Tool[Any], end: RoundRecord | None, outcome: Rehearsed) -> Drift | None:
    """Return where a replay differs from the record, if it does; ``end`` is that of the call."""
    if isinstance(outcome, NonDeterminismError):
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
    """Return how an ended call ends differently now; ``None`` if it does not."""
    recorded, now = _recorded_end(reply), _present_end(tool, outcome)
    if isinstance(outcome, Stopped):
        return Drift(at=outcome.at[0] if outcome.at else "result", recorded=recorded, now=now)
    if isinstance(outcome, Finished):
        same = "error" not in reply and "foreign" not in reply
        same = same and ("value" not in reply or reply["value"] == _encoded(tool, outcome.value))
    elif "error" in reply and reply["error"] is not None:
        same = error_to_json(outcome) == reply["error"]
    else:  # its text is not recorded
        same = bool(reply.keys() & {"error", "foreign"}) and not isinstance(outcome, AnabranchError)
    return None if same else Drift(at="result", recorded=recorded, now=now)


def _recorded_end(reply: dict[str, Any]) -> str:
    if "foreign" in reply:
        return f"failed: {_short(str(reply['foreign'].get('message')))}"
    if "error" in reply:
        return f"failed: {_short(error_text(reply['error']))}"
    return f"returned {_short(json.dumps(reply.get('value')))}"


def _present_end(tool: Tool[Any], outcome: Rehearsed) -> str:
    if isinstance(outcome, Finished):
        return f"returns {_short(json.dumps(_encoded(tool, outcome.value)))}"
    if isinstance(outcome, Stopped):
        return "goes on" + (f" with {', '.join(outcome.at)}" if outcome.at else "")
    return f"raises {_short(f'{type(outcome).__name__}: {outcome}')}"


def _encoded(tool: Tool[Any], value: object) -> Any:  # noqa: ANN401 - JSON
    try:
        return codec_of(tool.returned_by).encode(tool.name, value)
    except SerializationError:
        return None


def _kind(recorded: str) -> str:
    """Return what was recorded or is done now, without the fingerprint of what was asked."""
    kind, _, asked = recorded.partition(" ")
    return kind if len(asked) == LENGTH and " " not in asked else recorded


def _short(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"

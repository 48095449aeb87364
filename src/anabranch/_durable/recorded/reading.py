"""Reads a recorded call: every round, step and answer, and the call's state."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import JsonValue

from anabranch._durable.entries import PAGE, Notes, load_answers, load_notes
from anabranch._durable.recorded.finding import listed
from anabranch._durable.recorded.steps import (
    Holder,
    RecordedCall,
    RecordedRound,
    RoundOutcome,
    Steps,
    error_text,
)
from anabranch._durable.states import latest_number
from anabranch._durable.store import AnswerRecord, CallRecord, CallStore, RoundRecord
from anabranch._durable.transitions import UNDONE, CallState
from anabranch._engine import Journal, wakes_at


def outline(call: RecordedCall) -> RecordedCall:
    """Return ``call`` without arguments, values and texts of errors."""
    return call.model_copy(
        update={
            "arguments": None,
            "principal": "",
            "value": None,
            "error": _type_of(call.error),
            "steps": [
                step.model_copy(
                    update={"value": None, "asked": None, "error": _type_of(step.error)}
                )
                for step in call.steps
            ],
        }
    )


def _type_of(error: str | None) -> str | None:
    if error is None:
        return None
    name = error.partition(":")[0]
    return name if name.isidentifier() else "an error"


LINES = 50
"""Maximum lines of a call that are listed."""


async def read_call(store: CallStore, record: CallRecord, now: float) -> RecordedCall:
    reading = _Reading(Steps(record.tool), await store.answers(record.call_id))
    held = record.lease
    is_run = held is not None and held.until > now
    for number in range(await latest_number(store, record.call_id) + 1):
        entries = await store.entries(record.call_id, number)
        reading.take(number, await store.round(record.call_id, number), entries, is_run=is_run)
    if record.failure is not None:
        reading.error = error_text(json.loads(record.failure))
    state = record.state
    if state == CallState.RUNNING and not is_run:  # the process died
        state = CallState.READY
    undone = await store.undone_steps(record.call_id)
    unwound = state in {CallState.UNDOING, CallState.FAILED, *UNDONE}
    waits = state == CallState.WAITING
    return RecordedCall(
        **listed(record).model_dump(exclude={"state"}),
        state=state,
        arguments=json.loads(record.arguments),
        lease=None if held is None else Holder(worker=held.process, until=held.until),
        rounds=reading.rounds,
        steps=reading.steps.all(undone, unwound=unwound, over=not state.is_open),
        waits_for=reading.pending if waits else [],
        waits_until=reading.until if waits else None,
        value=reading.value,
        error=reading.error,
        notices=reading.notices,
        lines=await _other_lines(store, record.call_id),
        is_complete=reading.is_complete,
    )


@dataclass(slots=True)
class _Reading:
    steps: Steps
    inbox: Mapping[str, AnswerRecord]
    rounds: list[RecordedRound] = field(default_factory=list[RecordedRound])
    pending: list[str] = field(default_factory=list[str])
    until: float | None = None
    value: JsonValue = None
    error: str | None = None
    notices: int = 0
    is_complete: bool = True

    def take(
        self, number: int, ended: RoundRecord | None, stored: Mapping[str, str], *, is_run: bool
    ) -> None:
        """Add round ``number``, as the store counts: ended, running or interrupted."""
        taken = {step: each for step, each in self.inbox.items() if each.round == number}
        on_page = [step for step, each in taken.items() if each.by == PAGE]
        notes = load_notes("" if ended is None else ended.notes)
        given = load_answers({step: each.text for step, each in taken.items()})
        shown = _shown(number)
        self.steps.answer(shown, given, on_page)
        self.steps.record(shown, {**stored, **notes.entries})
        if ended is not None:
            self._end(ended, notes)
        elif is_run or stored or taken:
            self.pending = []
            outcome: RoundOutcome = "running" if is_run else "interrupted"
            self.rounds.append(RecordedRound(number=shown, outcome=outcome))

    def _end(self, ended: RoundRecord, notes: Notes) -> None:
        journal = self._journal(ended)
        reply: dict[str, Any] = json.loads(ended.reply)
        self.pending = [] if journal is None else list(journal.pending)
        self.until = None if journal is None else wakes_at(journal)
        if journal is not None:
            self.steps.state(_shown(ended.number), journal, notes)
            self.notices = max(self.notices, sum(journal.delivered.values()))
        self.value = reply.get("value")
        if "foreign" in reply:
            self.error = str(reply["foreign"].get("message", "an error of the protocol"))
        elif "error" in reply:
            self.error = error_text(reply["error"])
        self.rounds.append(
            RecordedRound(
                number=_shown(ended.number),
                outcome=_outcome(ended, reply),
                ended=notes.at,
                worker=notes.worker or None,
                asks=self.pending,
            )
        )

    def _journal(self, ended: RoundRecord) -> Journal | None:
        if not ended.state:
            return None
        try:
            return Journal.loads(ended.state)
        except ValueError:  # another release wrote the record
            self.is_complete = False
            return None


def _shown(number: int) -> int:
    """Return the number of a round for users, who count from 1; a store counts from 0."""
    return number + 1


def _outcome(ended: RoundRecord, reply: Mapping[str, Any]) -> RoundOutcome:
    if "asked" in reply:
        return "asked"
    if ended.state:
        return "began here"
    return "failed" if reply.keys() & {"error", "foreign"} else "returned"


async def _other_lines(store: CallStore, line: str) -> list[str]:
    first = line.partition("~")[0]
    found = [each.call_id for each in await store.calls(LINES, begins=first)]
    lines = [each for each in found if each == first or each.startswith(f"{first}~")]
    return sorted(each for each in lines if each != line)

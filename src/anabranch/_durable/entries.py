"""Entries and answers of a round as they are stored: their text forms, and how entries are merged into a journal.

A journal that travels between rounds has a text form of its own (``Journal.dumps``).
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from pydantic import JsonValue

from anabranch._durable.store import CallStore, RoundRecord
from anabranch._engine import Answer, Ask, Compensation, Entry, Journal, canonical
from anabranch.messages import SampleRequest, text_of

Deadlines = Mapping[str, float | None]
"""Until when branches may run, by path; ``None`` for one that was done in time."""


class StoredEntry(NamedTuple):
    """What one text of a store stands for.

    Attributes:
        entry: what has happened at a step.
        compensation: what its step has registered, without the step's id.
        deadlines: of the branches that were begun, or done, since the entry before.
    """

    entry: Entry
    compensation: Compensation | None
    deadlines: Deadlines


def dump_answer(answer: Answer) -> str:
    """Return an answer as text, the same for equal ones."""
    return canonical([answer.value, answer.error])


def load_answer(text: str) -> Answer:
    """Return what :func:`dump_answer` was given."""
    return Answer(*json.loads(text))


def dump_answers(answers: Mapping[str, Answer]) -> dict[str, str]:
    """Return answers as texts, by step."""
    return {step_id: dump_answer(answer) for step_id, answer in answers.items()}


def load_answers(texts: Mapping[str, str]) -> dict[str, Answer]:
    """Return what :func:`dump_answers` was given."""
    return {step_id: load_answer(text) for step_id, text in texts.items()}


def dump_entry(
    entry: Entry, compensation: Compensation | None = None, deadlines: Deadlines | None = None
) -> str:
    """Return as text what :class:`StoredEntry` has."""
    undo = None if compensation is None else [compensation.undo, compensation.step]
    said = [entry.kind, entry.fingerprint, entry.value, entry.error, entry.tokens, undo]
    return canonical([*said, deadlines or {}])


def load_entry(text: str) -> StoredEntry:
    """Return what :func:`dump_entry` was given."""
    kind, asked, value, error, tokens, undo, deadlines = json.loads(text)
    compensation = None if undo is None else Compensation("", *undo)
    return StoredEntry(Entry(kind, asked, value, error, tokens), compensation, deadlines)


def merge(journal: Journal, stored: Mapping[str, str], undone: Container[str] = ()) -> None:
    """Add to ``journal`` what its round had recorded when it was interrupted.

    It may have a part of that already, if it was stored elsewhere in the middle of the round. The
    compensations of steps that are ``undone`` are not due any more, and a branch has the time that it
    was given when it began.
    """
    for step_id, text in stored.items():
        if _is_known(journal, step_id):
            continue
        entry, compensation, deadlines = load_entry(text)
        journal.deadlines.update(deadlines)
        if entry.kind == "branch":  # it stands for all that was recorded inside
            _fold(journal, step_id)
        journal.entries[step_id] = entry
        journal.pending.pop(step_id, None)
        if compensation is not None:
            journal.compensations.append(replace(compensation, step_id=step_id))
    journal.compensations = [due for due in journal.compensations if due.step_id not in undone]


def _is_known(journal: Journal, step_id: str) -> bool:
    """Return whether the journal has the step, or a branch that was folded around it."""
    if step_id in journal.entries:
        return True
    path = step_id.rpartition("/")[0]
    while path:
        around = journal.entries.get(path)  # an author's key may read like a path
        if around is not None and around.kind == "branch":
            return True
        path = path.rpartition("/")[0]
    return False


def _fold(journal: Journal, path: str) -> None:
    inside = f"{path}/"
    journal.fold([known for known in journal.entries if known.startswith(inside)])
    for left in (journal.pending, journal.delivered, journal.deadlines, journal.reserved):
        for known in [known for known in left if known == path or known.startswith(inside)]:
            del left[known]


MAX_PROMPT = 2_000
"""Characters of a prompt that are noted: each sample of a call repeats the conversation before it."""


@dataclass(frozen=True, slots=True)
class Notes:
    """What is noted of one round.

    Attributes:
        at: when it ended, if that was noted.
        worker: in which process; empty if that was not noted.
        asked: what each open question asks: the request, of a sample the end of its prompt.
        entries: what was recorded after its last effect, as ``dump_entry`` writes it.
    """

    at: float | None = None
    worker: str = ""
    asked: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    entries: Mapping[str, str] = field(default_factory=dict[str, str])


def notes_text(
    at: float,
    worker: str,
    *,
    asks: Iterable[Ask],
    entries: Mapping[str, Entry],
) -> str:
    """Return the notes on a round that ends now, as text."""
    noted = {
        "at": round(at, 3),
        "worker": worker,
        "asked": {ask.step_id: _request(ask) for ask in asks},
        "entries": {step_id: dump_entry(entry) for step_id, entry in entries.items()},
    }
    return json.dumps(
        {name: value for name, value in noted.items() if value}, separators=(",", ":")
    )


def load_notes(text: str) -> Notes:
    """Return the notes again; none for a round with which a line of a call begins."""
    if not text:
        return Notes()
    noted: dict[str, Any] = json.loads(text)
    return Notes(**noted)


def _request(ask: Ask) -> JsonValue:
    request = ask.request
    if isinstance(request, SampleRequest):
        prompt = text_of(request.messages[-1].content) if request.messages else ""
        return {"prompt": prompt[-MAX_PROMPT:], "messages": len(request.messages)}
    shown: JsonValue = request.model_dump(mode="json", exclude_none=True)
    return shown


PAGE = "page"
"""By whom an answer was given that was entered on a page of the server."""


async def waiting_round(store: CallStore, journal: Journal, now: float) -> RoundRecord | None:
    """Return the round with whose questions the call of ``journal`` waits, if it does.

    Raises:
        StoreError: if the store failed.
    """
    record = await store.find(journal.line)
    last = await store.last_round(journal.line)
    waits = record is not None and record.state.is_open and record.deadline > now
    return last if waits and last is not None and last.state else None


async def enter(
    store: CallStore, journal: Journal, step_id: str, answer: Answer, deadline: float
) -> bool:
    """Store the answer to an open question, and until when its client may come for it.

    False if another answer is stored already, or the call takes none any more.

    Raises:
        StoreError: if the store failed, or the call is not there any more.
    """
    text = dump_answer(Answer(answer.value))
    stored = await store.answer(journal.line, {step_id: text}, by=PAGE, deadline=deadline)
    return stored is not None and stored[step_id] == text


async def entered(store: CallStore, journal: Journal) -> dict[str, Answer]:
    """Return what was entered for the open questions, by step.

    Raises:
        StoreError: if the store failed.
    """
    inbox = await store.answers(journal.line)
    given = {step: load_answer(each.text) for step, each in inbox.items() if each.by == PAGE}
    return journal.to_open(given)

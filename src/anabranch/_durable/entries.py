"""The stored forms of a round: its entries, answers and notes as text; and answers given on pages."""

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
"""The deadlines of branches, by path; ``None`` for a branch that ended in time."""


class StoredEntry(NamedTuple):
    """The content of one stored entry.

    ``compensation`` is the one that the step has registered, without the step's id. ``deadlines``
    has the deadlines of the branches that began or ended since the entry before.
    """

    entry: Entry
    compensation: Compensation | None
    deadlines: Deadlines


def dump_answer(answer: Answer) -> str:
    """Return an answer as text; equal answers have equal texts."""
    return canonical([answer.value, answer.error])


def load_answer(text: str) -> Answer:
    return Answer(*json.loads(text))


def dump_answers(answers: Mapping[str, Answer]) -> dict[str, str]:
    return {step_id: dump_answer(answer) for step_id, answer in answers.items()}


def load_answers(texts: Mapping[str, str]) -> dict[str, Answer]:
    return {step_id: load_answer(text) for step_id, text in texts.items()}


def dump_entry(
    entry: Entry, compensation: Compensation | None = None, deadlines: Deadlines | None = None
) -> str:
    """Return the fields of a :class:`StoredEntry` as text."""
    undo = None if compensation is None else [compensation.undo, compensation.step]
    said = [entry.kind, entry.fingerprint, entry.value, entry.error, entry.tokens, undo]
    return canonical([*said, deadlines or {}])


def load_entry(text: str) -> StoredEntry:
    kind, asked, value, error, tokens, undo, deadlines = json.loads(text)
    compensation = None if undo is None else Compensation("", *undo)
    return StoredEntry(Entry(kind, asked, value, error, tokens), compensation, deadlines)


def merge(journal: Journal, stored: Mapping[str, str], undone: Container[str] = ()) -> None:
    """Add the entries that an interrupted round has stored to ``journal``.

    The journal may have a part of them already. The compensations of ``undone`` steps are no longer
    due. An entry that the body made of an answer replaces the answer.
    """
    for step_id, text in stored.items():
        if _is_known(journal, step_id) and step_id not in journal.unread:
            continue
        entry, compensation, deadlines = load_entry(text)
        journal.deadlines.update(deadlines)
        if entry.kind == "branch":  # replaces all entries inside the branch
            _fold(journal, step_id)
        journal.entries[step_id] = entry
        journal.pending.pop(step_id, None)
        if compensation is not None:
            journal.compensations.append(replace(compensation, step_id=step_id))
    journal.compensations = [due for due in journal.compensations if due.step_id not in undone]


def _is_known(journal: Journal, step_id: str) -> bool:
    """Return whether the journal has the step, or a folded branch around it."""
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
"""Maximum characters of a prompt in the notes, since each sample repeats the conversation before it."""


@dataclass(frozen=True, slots=True)
class Notes:
    """The notes on one round; ``entries`` are those after the last effect."""

    at: float | None = None
    worker: str = ""
    asked: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    entries: Mapping[str, str] = field(default_factory=dict[str, str])


def notes_text(at: float, worker: str, *, asks: Iterable[Ask], entries: Mapping[str, Entry]) -> str:
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
"""The author (``by``) of an answer that was entered on a page of the server."""


async def waiting_round(store: CallStore, journal: Journal, now: float) -> RoundRecord | None:
    """Return the round whose questions the call of ``journal`` waits for, or ``None``."""
    record = await store.find(journal.line)
    last = await store.last_round(journal.line)
    waits = record is not None and record.state.is_open and record.deadline > now
    return last if waits and last is not None and last.state else None


async def enter(
    store: CallStore, journal: Journal, step_id: str, answer: Answer, deadline: float
) -> bool:
    """Store the answer to an open question, and the deadline of the client's next request.

    Return false if another answer is stored already, or the call takes no answers any more.
    """
    text = dump_answer(Answer(answer.value))
    stored = await store.answer(journal.line, {step_id: text}, by=PAGE, deadline=deadline)
    return stored is not None and stored[step_id] == text


async def entered(store: CallStore, journal: Journal) -> dict[str, Answer]:
    """Return the answers to open questions that were entered on pages, by step."""
    inbox = await store.answers(journal.line)
    given = {step: load_answer(each.text) for step, each in inbox.items() if each.by == PAGE}
    return journal.to_open(given)

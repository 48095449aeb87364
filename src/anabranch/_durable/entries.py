"""Entries of a round as they are stored: their text form, and how they are merged into a journal.

A journal that travels between rounds has a text form of its own (``Journal.dumps``). Ids that begin
with ``!`` are not steps; they record something about the round itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from anabranch._engine import Answer, Compensation, Entry, Journal, canonical

__all__ = [
    "FAILED",
    "answers_id",
    "answers_in",
    "answers_text",
    "dump_entry",
    "load_entry",
    "merge",
    "undone_id",
]

FAILED = "!failed"
"""The call has failed, and its compensations are being run; the text is its error."""

_UNDONE = "!undone:"


def undone_id(step_id: str) -> str:
    """Return the id that records that the step's compensation has been run."""
    return _UNDONE + step_id


def answers_id(number: int) -> str:
    """Return the id under which round ``number`` records the answers that it was given."""
    return f"!answers:{number}"


def answers_text(answers: Mapping[str, Answer]) -> str:
    """Return answers as text, the same for equal ones."""
    return canonical({key: [answer.value, answer.error] for key, answer in answers.items()})


def answers_in(stored: Mapping[str, str], number: int) -> dict[str, Answer]:
    """Return the answers that round ``number`` was given, if it had begun to do something."""
    given = json.loads(stored.get(answers_id(number), "{}"))
    return {step_id: Answer(*answer) for step_id, answer in given.items()}


def dump_entry(entry: Entry, compensation: Compensation | None) -> str:
    """Return an entry as text, with the compensation that its step has registered."""
    undo = None if compensation is None else [compensation.undo, compensation.step]
    return canonical([entry.kind, entry.fingerprint, entry.value, entry.error, entry.tokens, undo])


def load_entry(text: str) -> tuple[Entry, Compensation | None]:
    """Return what :func:`dump_entry` was given; the compensation has no step id."""
    kind, asked, value, error, tokens, undo = json.loads(text)
    compensation = None if undo is None else Compensation("", *undo)
    return Entry(kind, asked, value, error, tokens), compensation


def merge(journal: Journal, stored: Mapping[str, str]) -> None:
    """Add to ``journal`` what its round had recorded when it was interrupted.

    It may have a part of that already, if it was stored elsewhere in the middle of the round.
    """
    for step_id, text in stored.items():
        if step_id.startswith("!") or _is_known(journal, step_id):
            continue
        entry, compensation = load_entry(text)
        if entry.kind == "branch":  # it stands for all that was recorded inside
            _fold(journal, step_id)
        journal.entries[step_id] = entry
        journal.pending.pop(step_id, None)
        if compensation is not None:
            journal.compensations.append(replace(compensation, step_id=step_id))
    journal.compensations = [
        due for due in journal.compensations if undone_id(due.step_id) not in stored
    ]


def _is_known(journal: Journal, step_id: str) -> bool:
    """Whether the journal has the step, or a branch that was folded around it."""
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

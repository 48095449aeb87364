"""Entries of a call in a store, and back.

Owns the text form of one entry in a store (the state between rounds has its own, in
``call/journal.py``) and the merging of what a round that broke off has left behind. Ids that begin
with ``!`` are no steps' ids; they tell of the round itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from anabranch._durable.store import CallStore
from anabranch._engine import Answer, Compensation, Entry, Journal, canonical
from anabranch.errors import StoreError

__all__ = ["FAILED", "StoreRecorder", "answers_id", "answers_in", "answers_text", "merge"]

FAILED = "!failed"
"""The call has failed, and undos are being paid; the text is its error."""

_UNDONE = "!undone:"
"""Before a step's id: its undo has been run."""


def answers_id(number: int) -> str:
    """Return the id under which round ``number`` keeps the answers that it was given."""
    return f"!answers:{number}"


def answers_text(answers: Mapping[str, Answer]) -> str:
    """Return answers as text, the same for equal ones."""
    return canonical({key: [answer.value, answer.error] for key, answer in answers.items()})


def answers_in(stored: Mapping[str, str], number: int) -> dict[str, Answer]:
    """Return the answers that round ``number`` was given, if it got as far as doing anything."""
    given = json.loads(stored.get(answers_id(number), "{}"))
    return {step_id: Answer(*answer) for step_id, answer in given.items()}


class StoreRecorder:
    """Writes what one round does to a store, before anybody sees it.

    Args:
        store: where.
        line: the call's name there.
        number: the round's.
        answers: those that the round was given, as :func:`answers_text` writes them; what it does
            depends on them.
        check: raises when it is another worker's turn.
    """

    def __init__(
        self, store: CallStore, line: str, number: int, answers: str, check: Callable[[], None]
    ) -> None:
        self.check = check
        self._store = store
        self._line = line
        self._number = number
        self._answers = answers
        self._is_pinned = number == 0  # nothing was asked before: there are no other answers

    async def record(
        self, entries: Mapping[str, Entry], compensations: Mapping[str, Compensation]
    ) -> dict[str, Entry]:
        """Write ``entries``; return those that are stored now, the first for each id."""
        texts = {
            step_id: _dumps(entry, compensations.get(step_id)) for step_id, entry in entries.items()
        }
        stored = await self._write(texts)
        return {step_id: _loads(stored[step_id])[0] for step_id in entries}

    async def failing(self, error: dict[str, Any] | None) -> None:
        """Write that the call has failed."""
        await self._write({FAILED: canonical(error)})

    async def undone(self, step_id: str) -> None:
        """Write that the undo of ``step_id`` has been run."""
        await self._write({_UNDONE + step_id: ""})

    async def _write(self, texts: Mapping[str, str]) -> dict[str, str]:
        """Write ``texts``; with the first of them, what the round was answered."""
        mark = answers_id(self._number)
        pinning = {} if self._is_pinned else {mark: self._answers}
        if not texts and not pinning:
            return {}
        stored = await self._store.record(self._line, self._number, {**pinning, **texts})
        if stored.get(mark, self._answers) != self._answers:
            raise StoreError(f"Call {self._line!r} was taken over, with other answers. Try again.")
        self._is_pinned = True
        return stored


def merge(journal: Journal, stored: Mapping[str, str]) -> None:
    """Add to ``journal`` what its round had done when it broke off."""
    for step_id, text in stored.items():
        if step_id.startswith("!"):
            continue
        entry, owed = _loads(text)
        if entry.kind == "branch":  # it stands for all that was recorded inside
            _fold(journal, step_id)
        journal.entries.setdefault(step_id, entry)
        journal.pending.pop(step_id, None)
        if owed is not None:
            journal.compensations.append(replace(owed, step_id=step_id))
    journal.compensations = [
        due for due in journal.compensations if _UNDONE + due.step_id not in stored
    ]


def _fold(journal: Journal, path: str) -> None:
    inside = f"{path}/"
    journal.fold([known for known in journal.entries if known.startswith(inside)])
    for left in (journal.pending, journal.delivered, journal.deadlines):
        for known in [known for known in left if known == path or known.startswith(inside)]:
            del left[known]


def _dumps(entry: Entry, owed: Compensation | None) -> str:
    undo = None if owed is None else [owed.undo, owed.step]
    return canonical([entry.kind, entry.fingerprint, entry.value, entry.error, entry.tokens, undo])


def _loads(text: str) -> tuple[Entry, Compensation | None]:
    kind, asked, value, error, tokens, undo = json.loads(text)
    owed = None if undo is None else Compensation("", *undo)
    return Entry(kind, asked, value, error, tokens), owed

"""Answers that a person enters on a page: stored beside the call until its next request takes them.

An answer belongs to the round that is to come. The first one to a question stays.
"""

from __future__ import annotations

import json

from anabranch._durable.store import CallStore, RoundRecord
from anabranch._engine import Answer, Journal, canonical

__all__ = ["enter", "entered", "waiting_round"]


async def waiting_round(store: CallStore, journal: Journal, now: float) -> RoundRecord | None:
    """Return the round with whose questions the call of ``journal`` waits, if it does.

    Raises:
        StoreError: the store failed.
    """
    record = await store.find(journal.line)
    last = await store.last_round(journal.line)
    waits = record is not None and record.status == "open" and record.deadline > now
    return last if waits and last is not None and last.state else None


async def enter(store: CallStore, journal: Journal, step_id: str, answer: Answer) -> bool:
    """Store the answer to an open question; false if another one is stored already.

    Raises:
        StoreError: the store failed, or the call is not there any more.
    """
    name, text = _place(journal) + step_id, canonical(answer.value)
    stored = await store.record(journal.line, journal.rounds, {name: text})
    return stored[name] == text


async def entered(store: CallStore, journal: Journal) -> dict[str, Answer]:
    """Return what was entered for the open questions, by step.

    Raises:
        StoreError: the store failed.
    """
    stored = await store.entries(journal.line, journal.rounds)
    place = _place(journal)
    answers = {
        name.removeprefix(place): Answer(json.loads(text))
        for name, text in stored.items()
        if name.startswith(place)
    }
    return journal.to_open(answers)


def _place(journal: Journal) -> str:
    """Return how the ids of answers for the round that is to come begin."""
    return f"!entered:{journal.rounds}:"

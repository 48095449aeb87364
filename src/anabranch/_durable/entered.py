"""Answers that a person enters on a page: in the inbox of the call until its next request takes them.

The first answer to a question stays.
"""

from __future__ import annotations

from anabranch._durable.entries import dump_answer, load_answer
from anabranch._durable.store import CallStore, RoundRecord
from anabranch._engine import Answer, Journal

PAGE = "page"
"""By whom an answer was given that was entered on a page of the server."""


async def waiting_round(store: CallStore, journal: Journal, now: float) -> RoundRecord | None:
    """Return the round with whose questions the call of ``journal`` waits, if it does.

    Raises:
        StoreError: the store failed.
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
        StoreError: the store failed, or the call is not there any more.
    """
    text = dump_answer(Answer(answer.value))
    stored = await store.answer(journal.line, {step_id: text}, by=PAGE, deadline=deadline)
    return stored is not None and stored[step_id] == text


async def entered(store: CallStore, journal: Journal) -> dict[str, Answer]:
    """Return what was entered for the open questions, by step.

    Raises:
        StoreError: the store failed.
    """
    inbox = await store.answers(journal.line)
    given = {step: load_answer(each.text) for step, each in inbox.items() if each.by == PAGE}
    return journal.to_open(given)

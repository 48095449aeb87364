"""Lines of a call: a question that is answered differently begins another, from where it was asked.

The lines of a call have the effects before the fork in common, and the first line undoes them. After
it each has effects, idempotency keys and a record in the store of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from anabranch._durable.entries import FAILED, answers_text, load_entry
from anabranch._durable.policy import Durability
from anabranch._durable.states import digest, latest_number
from anabranch._durable.store import CallRecord, CallStore, RoundRecord
from anabranch._engine import Answer, Journal
from anabranch.errors import CallExpiredError, ToolError

__all__ = ["begin_line", "find_line", "is_compensated", "name_line"]


def name_line(journal: Journal, answers: Mapping[str, Answer]) -> None:
    """Make ``journal`` that of the line that begins with ``answers``."""
    journal.begin_line(f"~{journal.rounds}.{digest(answers_text(answers))[:12]}")


async def begin_line(store: CallStore, record: CallRecord, journal: Journal) -> None:
    """Store a line, as ``record`` describes it, whose next round starts from ``journal``."""
    await store.begin(record)
    before = RoundRecord(journal.rounds - 1, "", "{}", journal.dumps())
    await store.end_round(journal.line, before, deadline=None)


async def is_compensated(store: CallStore, known: CallRecord, journal: Journal) -> bool:
    """Whether what ``journal`` has done has been undone, or is being undone, in the line ``known``."""
    if known.status == "expired":
        return True
    if not journal.compensations:
        return False
    if known.status == "failed":
        return True
    return FAILED in await store.entries(known.call_id, await latest_number(store, known.call_id))


async def find_line(
    policy: Durability,
    record: CallRecord,
    journal: Journal,
    answers: Mapping[str, Answer],
    *,
    differs: bool,
) -> None:
    """Bring ``journal``, which was not stored here, to the line and the round that it continues.

    Args:
        policy: has the store.
        record: how a line begins that the store does not have.
        journal: the call as it was when it asked what ``answers`` answer.
        answers: none if the call has just begun, or begins again after a crash.
        differs: whether these questions have been answered before, and differently.

    Raises:
        CallExpiredError: it was not answered in time.
        ToolError: what the call had done before its question has been undone.
        StoreError: the store failed.
    """
    store = policy.store
    while (known := await store.find(journal.line)) is not None:
        if known.status == "expired":
            raise CallExpiredError(known.call_id)
        number = await latest_number(store, journal.line)
        stored = await store.entries(journal.line, number)
        undone = known.status == "open" and FAILED in stored
        if answers and (differs or undone or not _agree(stored, answers)):
            if await is_compensated(store, known, journal):
                raise ToolError(_UNDONE)
            name_line(journal, answers)
            differs = False
        else:
            journal.started, journal.rounds = known.started, number
            return
    if differs:
        name_line(journal, answers)
    if answers:
        journal.rounds += 1
        await begin_line(store, replace(record, call_id=journal.line), journal)


_UNDONE = (
    "What this call had done before its question has been undone, because the call failed. Call the"
    " tool again."
)


def _agree(stored: Mapping[str, str], answers: Mapping[str, Answer]) -> bool:
    """Whether ``answers`` are what is recorded, where something is."""
    recorded = {known: load_entry(stored[known])[0] for known in answers if known in stored}
    return all(
        (entry.value, entry.error) == (answers[known].value, answers[known].error)
        for known, entry in recorded.items()
    )

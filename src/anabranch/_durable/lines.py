"""Lines of a call: a question that is answered differently begins another, from where it was asked.

The lines of a call have the effects before the fork in common, and the first line undoes them. After
it each has effects, idempotency keys and a record in the store of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from anabranch._durable.call_states import UNDONE, CallState
from anabranch._durable.entries import dump_answers
from anabranch._durable.states import digest
from anabranch._durable.store import CallRecord, CallStore, RoundRecord
from anabranch._engine import Answer, Journal, canonical


def name_line(journal: Journal, answers: Mapping[str, Answer]) -> None:
    """Make ``journal`` that of the line that begins with ``answers``."""
    journal.begin_line(f"~{journal.rounds}.{digest(canonical(dump_answers(answers)))[:12]}")


async def begin_line(store: CallStore, record: CallRecord, journal: Journal) -> None:
    """Store a line, as ``record`` describes it, whose next round starts from ``journal``."""
    waiting = replace(record, state=CallState.WAITING, failure=None, is_stopped=False)
    await store.begin(waiting, after=RoundRecord(journal.rounds - 1, "{}", journal.dumps()))


def is_compensated(known: CallRecord, journal: Journal) -> bool:
    """Whether what ``journal`` has done has been undone, or is being undone, in the line ``known``."""
    has_failed = known.state in {CallState.FAILED, CallState.UNDOING}
    return known.state in UNDONE or (has_failed and bool(journal.compensations))

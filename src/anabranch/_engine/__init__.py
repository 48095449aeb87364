"""One call as a machine: asks out, answers in.

Owns the journal, step identity, suspension, run-once effects, limits and their accounting. It
runs a body and knows neither tools nor contexts nor who answers; it opens no socket, reads no
clock and draws no randomness but through what it is given.

    journal.py      what has happened: entries, and their compact form between rounds
    strands.py      which task is where in the call, hence what its next step is called
    codec.py        how values become entries: pydantic, by annotation, or plain JSON
    waits.py        what a task waits for, as far as asyncio shows it
    quiescence.py   when every strand is blocked on an ask, and so the round is over
    course.py       where a run stands in its journal: names of steps, and drift
    branch.py       a timeline with limits; sub-branches, deadlines, folding
    effects.py      steps, and the undos that are still owed
    combine.py      gather and race, and work that must not be broken off
    open_asks.py    the asks that wait for an answer
    store.py        the port behind which calls are kept
    recording.py    with a store: what has happened is written before it is seen
    operations.py   what a running body does: ask, step, notify, race, look at the clock
    machine.py      the call: rounds for cold edges, a stream of asks for hot ones
"""

from anabranch._engine.branch import Branch
from anabranch._engine.call import Call, Finished, Waiting
from anabranch._engine.codec import Codec, codec_of
from anabranch._engine.combine import all_of, to_the_end
from anabranch._engine.effects import Effect, current_idempotency_key, step_fingerprint
from anabranch._engine.journal import (
    Answer,
    Ask,
    AskKind,
    Entry,
    Journal,
    Notice,
    Owed,
    canonical,
    fingerprint,
)
from anabranch._engine.operations import Sink
from anabranch._engine.recorder import Recorder
from anabranch._engine.strands import Scope, current_scope, scope_in

__all__ = [
    "Answer",
    "Ask",
    "AskKind",
    "Branch",
    "Call",
    "Codec",
    "Effect",
    "Entry",
    "Finished",
    "Journal",
    "Notice",
    "Owed",
    "Recorder",
    "Scope",
    "Sink",
    "Waiting",
    "all_of",
    "canonical",
    "codec_of",
    "current_idempotency_key",
    "current_scope",
    "fingerprint",
    "scope_in",
    "step_fingerprint",
    "to_the_end",
]

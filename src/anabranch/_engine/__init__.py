"""The engine: one call as a machine without transport. Asks go out, answers come in.

It runs a body and knows neither tools nor contexts nor where answers come from. It opens no
socket, reads no clock and draws no randomness but through what it is given. A :class:`Call` holds
its parts; each can be read and tested without the others:

    journal         what has happened, as data; ``journal_text`` its form between rounds
    cursor          ids, what is recorded, ``drift``; the one that reads and writes entries
    wordings        questions that a deployment has changed, and answers to their old words
    budgets         what branches have spent and reserved, and which requests are admitted
    scheduler       which strands run, and when a round is over (``strands``, ``quiescence``,
                    ``needed``, ``waits``; ``progress`` of rounds that are cut off)
    effects         steps run once (``functions``), recorded before they are seen (``recorder``)
    compensations   the undos of a call that fails (``ending``)
    markers         which way a call takes where its code was changed
    branch          limits; ``deadline``, and ``folding`` of what is finished
    operations      what else a body does: ask (``open_asks``), sleep (``sleeping``), race
                    (``combine``), notify, time
    call            holds them all, and is driven by an edge; ``outcomes`` is how it ends

``scope`` is a place in the program, which names what is made there; ``codec`` turns values into
entries and back; ``exits`` makes errors of what an author's code raises that is no ``Exception``.
"""

from anabranch._aio import all_of, none_of
from anabranch._engine.branch import Branch
from anabranch._engine.call import Call, current_call
from anabranch._engine.codec import Codec, codec_of
from anabranch._engine.effects import STEP_THREADS
from anabranch._engine.ending import Finished, Stopped, Waiting
from anabranch._engine.functions import (
    EXIT_AS_ERROR,
    Effect,
    Perform,
    as_error,
    current_idempotency_key,
    error_instead,
    is_async,
    perform,
)
from anabranch._engine.journal import (
    MARKER,
    Answer,
    Ask,
    AskKind,
    Compensation,
    Entry,
    Journal,
    Notice,
)
from anabranch._engine.operations import Sink
from anabranch._engine.pinning import canonical, fingerprint, pin
from anabranch._engine.quiescence import checked_patience
from anabranch._engine.recorder import Recorder
from anabranch._engine.scope import Scope
from anabranch._engine.strands import current_scope
from anabranch._engine.wordings import REFUSED

__all__ = [
    "EXIT_AS_ERROR",
    "MARKER",
    "REFUSED",
    "STEP_THREADS",
    "Answer",
    "Ask",
    "AskKind",
    "Branch",
    "Call",
    "Codec",
    "Compensation",
    "Effect",
    "Entry",
    "Finished",
    "Journal",
    "Notice",
    "Perform",
    "Recorder",
    "Scope",
    "Sink",
    "Stopped",
    "Waiting",
    "all_of",
    "as_error",
    "canonical",
    "checked_patience",
    "codec_of",
    "current_call",
    "current_idempotency_key",
    "current_scope",
    "error_instead",
    "fingerprint",
    "is_async",
    "none_of",
    "perform",
    "pin",
]

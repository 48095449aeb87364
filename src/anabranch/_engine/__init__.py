"""The engine: runs one call without a transport. It returns the call's asks, and takes the answers.

The engine runs a *body*, the coroutine of a tool or an agent. An *edge* (an MCP server, a chat, a
test) drives the engine and brings the answers. The clock, the secret behind randomness and the
recorder are arguments. The words of this package:

    round       one run of the body, from its start until the body ends or waits for answers
    strand      a task of the call: the body's own, or a task that another strand has started
    entry       the recorded outcome of one step, question, branch, race or reading of the clock
    drift       the difference between a replay and the record: the code or its input has changed
    fold        to replace all entries inside a finished branch by one entry
"""

from anabranch._engine.branch import Branch
from anabranch._engine.call import Call, current_call
from anabranch._engine.codec import Codec, codec_of, drawn_codec, repeatable
from anabranch._engine.effects import STEP_THREADS
from anabranch._engine.ending import Finished, Stopped, Waiting
from anabranch._engine.folding import Watch
from anabranch._engine.functions import (
    EXIT_AS_ERROR,
    Effect,
    as_error,
    current_idempotency_key,
    error_instead,
    idempotency_key,
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
from anabranch._engine.journal_text import exceeds, size
from anabranch._engine.open_asks import REFUSED, hold_sleeps, is_asleep, wakes_at
from anabranch._engine.operations import Sink, discard
from anabranch._engine.pinning import LENGTH, canonical, fingerprint, pin
from anabranch._engine.quiescence import PATIENCE, checked_patience
from anabranch._engine.recorder import Recorder
from anabranch._engine.strands import Scope

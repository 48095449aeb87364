"""The states of a call, and the table of the events between them.

Every rule about states is in this module: stores make their statements from the table, and the model
that real stores are compared with reads it as well. A call has a lease while it is ``running``, and
while a worker runs its compensations; in every other state it has none. No other worker moves a call
whose lease has not run out. Answers move none: they are in its inbox until its next round takes them.

    state      on                                                   to
    ready      a worker opens the next round                        running
    running    the round ends with open questions, or a sleep       waiting
    running    the tool returns; it raises, and nothing is to undo  done; failed
    running    the tool raises, and compensations are left          undoing
    running    its worker leaves, or its lease has run out          ready
    waiting    its client repeats the request, with answers         running
    any open   its time is over; it is stopped                      undoing
    undoing    all is undone; some of it could not be, yet          failed, expired, stopped; undoing
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class CallState(StrEnum):
    """What a call is doing.

    ``ready``: a worker may go on with it. ``waiting``: for answers, or for a time. ``undoing``: it has
    failed, expired or been stopped, and compensations are left. The last four are ends.
    """

    READY = "ready"
    RUNNING = "running"
    WAITING = "waiting"
    UNDOING = "undoing"
    DONE = "done"
    FAILED = "failed"
    EXPIRED = "expired"
    STOPPED = "stopped"

    @property
    def is_open(self) -> bool:
        """Whether the call has not ended."""
        return self in OPEN


class CallEvent(StrEnum):
    """What moves a call; the names are those of the table."""

    OPEN = "open"
    """A worker takes the lease, and opens a round; or goes on with compensations, if they are left."""
    ASK = "ask"
    RETURN = "return"
    RAISE = "raise"
    """The call has failed, and there is nothing (more) to undo."""
    FAIL = "fail"
    """The call has failed, and its compensations are run next, under the same lease."""
    RETRY = "retry"
    """Compensations were tried in vain; they are tried again when the deadline has passed."""
    LEAVE = "leave"
    """Its worker leaves before the round has ended, or is dead."""
    UNDO = "undo"
    """A worker takes the lease to undo what the call has done: its time is over, or it is stopped."""
    EXPIRE = "expire"
    STOP = "stop"


_READY, _RUNNING, _WAITING, _UNDOING = (
    CallState.READY,
    CallState.RUNNING,
    CallState.WAITING,
    CallState.UNDOING,
)

OPEN: frozenset[CallState] = frozenset({_READY, _RUNNING, _WAITING, _UNDOING})
UNDONE: frozenset[CallState] = frozenset({CallState.EXPIRED, CallState.STOPPED})
"""In which all that the call had done is undone, since no one wanted it to go on."""
TAKES_ANSWERS: frozenset[CallState] = frozenset({_READY, _RUNNING, _WAITING})
"""In which an answer is put into the inbox: a round may still take it."""

ENDS_ROUND: frozenset[CallEvent] = frozenset(
    {CallEvent.ASK, CallEvent.RETURN, CallEvent.RAISE, CallEvent.RETRY}
)
"""With which a round ends, and the lease with it."""
ENDS_LEASE: frozenset[CallEvent] = frozenset(
    {CallEvent.RAISE, CallEvent.RETRY, CallEvent.LEAVE, CallEvent.EXPIRE, CallEvent.STOP}
)
"""By which the owner of a lease moves the call and releases it, without the end of a round."""

NAMED: Mapping[str, frozenset[CallState]] = {
    "open": OPEN,
    **{str(state): frozenset({state}) for state in CallState},
}
"""What a person calls states: each by its name, and all that are no end together."""

TRANSITIONS: Mapping[CallEvent, Mapping[CallState, CallState]] = {
    CallEvent.OPEN: {
        _READY: _RUNNING,
        _WAITING: _RUNNING,
        _RUNNING: _RUNNING,
        _UNDOING: _UNDOING,
    },
    CallEvent.ASK: {_RUNNING: _WAITING},
    CallEvent.RETURN: {_RUNNING: CallState.DONE},
    CallEvent.RAISE: {_RUNNING: CallState.FAILED, _UNDOING: CallState.FAILED},
    CallEvent.FAIL: {_RUNNING: _UNDOING, _UNDOING: _UNDOING},
    CallEvent.RETRY: {_UNDOING: _UNDOING},
    CallEvent.LEAVE: {_RUNNING: _READY, _UNDOING: _UNDOING},
    CallEvent.UNDO: {
        _READY: _UNDOING,
        _WAITING: _UNDOING,
        _RUNNING: _UNDOING,
        _UNDOING: _UNDOING,
    },
    CallEvent.EXPIRE: {_UNDOING: CallState.EXPIRED},
    CallEvent.STOP: {_UNDOING: CallState.STOPPED},
}
"""Where each event takes a call, by its state; an event does nothing in a state that is not named."""

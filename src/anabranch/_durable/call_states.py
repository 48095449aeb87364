"""The states of a call, and the table of the events between them.

This module has every rule about states: stores make their statements from the table. Only a
``running`` call, or a call under compensation, has a lease, and no other worker moves it before the
lease has run out. Answers move no call: they stay in its inbox until its next round.

    state      on                                                   to
    ready      a worker opens the next round                        running
    running    the round ends with open questions, or a sleep       waiting
    running    the tool returns; it raises with nothing to undo     done; failed
    running    the tool raises, and compensations are left          undoing
    running    its worker leaves, or its lease has run out          ready
    waiting    its client repeats the request, with answers         running
    any open   its time is over; it is stopped                      undoing
    undoing    all is undone; some compensation has failed          failed, expired, stopped; undoing
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class CallState(StrEnum):
    """The state of a call; if ``undoing``, it failed, expired or was stopped, with undos left."""

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
        return self in OPEN


class CallEvent(StrEnum):
    """The events that move a stored call from one state to another."""

    OPEN = "open"
    """A worker takes the lease, and opens a round or continues with the remaining compensations."""
    ASK = "ask"
    RETURN = "return"
    RAISE = "raise"
    """The call has failed, and no compensation is left."""
    FAIL = "fail"
    """The call has failed, and its compensations are run next, under the same lease."""
    RETRY = "retry"
    """Compensations have failed; a worker tries them again after the deadline."""
    LEAVE = "leave"
    """The worker leaves before the end of the round, or is dead."""
    UNDO = "undo"
    """A worker takes the lease to undo the call's effects: its time is over, or it is stopped."""
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
"""The end states in which all effects of the call are undone, although it has not failed."""
TAKES_ANSWERS: frozenset[CallState] = frozenset({_READY, _RUNNING, _WAITING})
"""The states in which the inbox accepts an answer, since a round may still take it."""

ENDS_ROUND: frozenset[CallEvent] = frozenset(
    {CallEvent.ASK, CallEvent.RETURN, CallEvent.RAISE, CallEvent.RETRY}
)
"""The events that end a round, and its lease."""
ENDS_LEASE: frozenset[CallEvent] = frozenset(
    {CallEvent.RAISE, CallEvent.RETRY, CallEvent.LEAVE, CallEvent.EXPIRE, CallEvent.STOP}
)
"""The events with which a lease's owner moves the call and releases the lease, without ending a round."""

NAMED: Mapping[str, frozenset[CallState]] = {
    "open": OPEN,
    **{str(state): frozenset({state}) for state in CallState},
}
"""The names of states for users: each state's name, and ``open`` for all but the ends."""

TRANSITIONS: Mapping[CallEvent, Mapping[CallState, CallState]] = {
    CallEvent.OPEN: {_READY: _RUNNING, _WAITING: _RUNNING, _RUNNING: _RUNNING, _UNDOING: _UNDOING},
    CallEvent.ASK: {_RUNNING: _WAITING},
    CallEvent.RETURN: {_RUNNING: CallState.DONE},
    CallEvent.RAISE: {_RUNNING: CallState.FAILED, _UNDOING: CallState.FAILED},
    CallEvent.FAIL: {_RUNNING: _UNDOING, _UNDOING: _UNDOING},
    CallEvent.RETRY: {_UNDOING: _UNDOING},
    CallEvent.LEAVE: {_RUNNING: _READY, _UNDOING: _UNDOING},
    CallEvent.UNDO: {_READY: _UNDOING, _WAITING: _UNDOING, _RUNNING: _UNDOING, _UNDOING: _UNDOING},
    CallEvent.EXPIRE: {_UNDOING: CallState.EXPIRED},
    CallEvent.STOP: {_UNDOING: CallState.STOPPED},
}
"""The next state for each event and state; an event does nothing in any other state."""

"""The states of a call and of a conversation's turn, and the tables of the events between them.

This module has every rule about states of calls: stores make their statements from the table. Only a
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

A store has at most one unfinished turn for each run of events. The methods of :class:`TurnRecord` are the
events, and raise if the table has no such event in the state. A store replaces a record only if it
still is the one from which the next record was made.

    state      on                                                   to
    none       a message or an answer begins a turn                 running
    ready      a worker with the turn's version takes the lease     running
    waiting    its time has come, and a worker takes the lease      running
    running    its worker leaves, or is dead                        ready
    running    its tools sleep                                      waiting
    running    it ends                                              none
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
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


class TurnState(StrEnum):
    """The state of an unfinished turn: a worker may take a ``ready`` one, and a ``waiting`` one later."""

    READY = "ready"
    RUNNING = "running"
    WAITING = "waiting"


class TurnEvent(StrEnum):
    """The events that change the state of a turn, as the table of this module shows."""

    TAKE = "take"
    LEAVE = "leave"
    SLEEP = "sleep"
    CALL = "call"
    """Some process lets a worker look for the turn, because the turn's worker is dead or none has come."""


TURN_TRANSITIONS: Mapping[TurnEvent, Mapping[TurnState, TurnState]] = {
    TurnEvent.TAKE: {TurnState.READY: TurnState.RUNNING, TurnState.WAITING: TurnState.RUNNING},
    TurnEvent.LEAVE: {TurnState.RUNNING: TurnState.READY},
    TurnEvent.SLEEP: {TurnState.RUNNING: TurnState.WAITING},
    TurnEvent.CALL: {
        TurnState.READY: TurnState.READY,
        TurnState.RUNNING: TurnState.READY,
        TurnState.WAITING: TurnState.WAITING,
    },
}
"""The next state for each event and state; an event is an error in any other state."""


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """An unfinished turn in a store of run events.

    Attributes:
        due: the time from which a worker looks for the turn: the end of the lease while ``running``.
        attempt: the number of workers of the turn that died or left.
        version: the version of the tools' code that the next worker must have; empty for any.
        wakes_at: the time until which the turn waits or waited; 0 if it waits only for a worker.
    """

    id: str
    state: TurnState
    due: float
    owner: str = ""
    process: str = ""
    attempt: int = 0
    version: str = ""
    wakes_at: float = 0.0

    @property
    def wake(self) -> str:
        """The name of the wake for the turn in this state, by which an engine finds a worker."""
        version = f"~{self.version}" if self.version else ""
        time = f"@{self.wakes_at!r}" if self.wakes_at else ""
        return f"{self.id}/{self.attempt}{version}{time}"

    def taken(self, owner: str, process: str, until: float) -> TurnRecord:
        on = self._on(TurnEvent.TAKE)
        return replace(on, owner=owner, process=process, due=until, version="")

    def left(self, due: float) -> TurnRecord:
        return replace(self._on(TurnEvent.LEAVE), due=due)

    def asleep(self, until: float) -> TurnRecord:
        return replace(self._on(TurnEvent.SLEEP), due=until, wakes_at=until, attempt=0)

    def called(self, due: float) -> TurnRecord:
        """Return the record of this turn, due for another worker; count the last one, if any."""
        attempt, wakes_at = self.attempt + bool(self.owner), min(self.wakes_at, due)
        return replace(self._on(TurnEvent.CALL), due=due, wakes_at=wakes_at, attempt=attempt)

    def _on(self, event: TurnEvent) -> TurnRecord:
        state = TURN_TRANSITIONS[event][self.state]
        return replace(self, state=state, owner="", process="")


def begun(turn_id: str, owner: str, process: str, until: float) -> TurnRecord:
    return TurnRecord(turn_id, TurnState.RUNNING, until, owner, process)

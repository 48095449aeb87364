"""The states of a conversation's unfinished turn, and the table of the events between them.

A store has at most one such turn for each run of events. The methods of :class:`TurnRecord` are the
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


_READY, _RUNNING, _WAITING = TurnState

TURN_TRANSITIONS: Mapping[TurnEvent, Mapping[TurnState, TurnState]] = {
    TurnEvent.TAKE: {_READY: _RUNNING, _WAITING: _RUNNING},
    TurnEvent.LEAVE: {_RUNNING: _READY},
    TurnEvent.SLEEP: {_RUNNING: _WAITING},
    TurnEvent.CALL: {_READY: _READY, _RUNNING: _READY, _WAITING: _WAITING},
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

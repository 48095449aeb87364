"""A recorded call, its rounds and its steps, as data that can be written as JSON."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, JsonValue

from anabranch._durable.call_states import CallState

UndoState = Literal["registered", "due", "done", "not needed"]


RoundOutcome = Literal["asked", "returned", "failed", "interrupted", "running", "began here"]


class _Shape(BaseModel):
    model_config = ConfigDict(frozen=True)


class Listed(_Shape):
    """A call in a list; times are seconds since the epoch.

    ``version`` is that of the code which has begun it, or was the last to continue it.
    """

    id: str
    tool: str
    state: CallState
    started: float
    deadline: float
    principal: str = ""
    version: str = ""


class Holder(_Shape):
    """Who has the lease on a call."""

    worker: str
    until: float


class RecordedStep(_Shape):
    """One thing that has happened in a call, or that it waits for.

    Attributes:
        id: its step id; of a branch, its path.
        kind: ``step``, ``elicit``, ``url``, ``sample``, ``branch``, ``task``, ``now``, ``seed``, ``race``.
        within: the path of the branch or task that it is in.
        depth: how many branches and tasks enclose it.
        round: the round in which it was recorded, or asked.
        state: ``done``, ``failed`` or ``open``; a branch that is over but not folded has ``ended``.
        value: what it returned, or was answered.
        error: why it failed.
        asked: what was asked, if that is recorded.
        answered_by: ``client``, ``page`` (of the server), ``server`` (its own model), if known.
        answered_in: the round that was given the answer.
        tokens: what it cost, where it is a sample or a branch.
        undo: what has become of its undo, if it has one; ``undo_name`` is the undo's function.
    """

    id: str
    kind: str
    within: str
    depth: int = 0
    round: int
    state: Literal["done", "failed", "open", "ended"] = "done"
    value: JsonValue = None
    error: str | None = None
    asked: JsonValue = None
    answered_by: Literal["client", "page", "server"] | None = None
    answered_in: int | None = None
    tokens: int | None = None
    undo: UndoState | None = None
    undo_name: str | None = None


class RecordedRound(_Shape):
    """One round.

    Attributes:
        number: rounds count from 0.
        outcome: how it ended: it ``asked``, the tool ``returned`` or ``failed``; it was
            ``interrupted``, or is ``running``; the call ``began here`` as another line.
        ended: when, seconds since the epoch, if that was noted.
        worker: in which process, if that was noted.
        asks: the ids of the questions with which it ended.
    """

    number: int
    outcome: RoundOutcome
    ended: float | None = None
    worker: str | None = None
    asks: list[str] = []


class RecordedCall(Listed):
    """A call with all that is recorded of it.

    Attributes:
        arguments: as they were validated.
        lease: who runs it now, or did when the lease was last renewed.
        rounds: in order.
        steps: in the order in which they happened; what is inside a branch follows the branch.
        waits_for: the ids of the open questions, and of open sleeps.
        waits_until: when the first of these sleeps ends, and the call goes on by itself.
        value: what the tool returned; ``error``: why it failed.
        notices: how many log lines and progress messages were delivered.
        lines: the names of the other lines of this call.
        is_complete: whether all of it can be read; another release may have written the rest.
    """

    arguments: JsonValue
    lease: Holder | None = None
    rounds: list[RecordedRound] = []
    steps: list[RecordedStep] = []
    waits_for: list[str] = []
    waits_until: float | None = None
    value: JsonValue = None
    error: str | None = None
    notices: int = 0
    lines: list[str] = []
    is_complete: bool = True

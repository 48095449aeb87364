"""Data models of a recorded call, its rounds and its steps, which JSON can represent."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, JsonValue

from anabranch._durable import CallState

UndoState = Literal["registered", "due", "done", "not needed"]


RoundOutcome = Literal["asked", "returned", "failed", "interrupted", "running", "began here"]


class _Shape(BaseModel):
    model_config = ConfigDict(frozen=True)


class Listed(_Shape):
    """A call in a list; times are seconds since the epoch.

    ``version`` is the version of the code that started the call, or continued it last.
    """

    id: str
    tool: str
    state: CallState
    started: float
    deadline: float
    principal: str = ""
    version: str = ""


class Holder(_Shape):
    """The worker that has the lease on a call."""

    worker: str
    until: float


class RecordedStep(_Shape):
    """An operation of a call, recorded or open.

    Attributes:
        id: the step id; for a branch, its path.
        kind: ``step``, ``elicit``, ``url``, ``sample``, ``branch``, ``task``, ``now``, ``seed``,
            ``race``, ``defaults``.
        within: the path of the innermost branch or task around the step.
        depth: the number of branches and tasks around the step.
        round: the round that recorded or asked the step.
        state: ``done``, ``failed`` or ``open``; a finished branch that is not folded has ``ended``.
        value: the returned value, or the answer.
        error: the reason of the failure.
        asked: the question, if it is recorded.
        answered_by: ``client``, ``page`` (of the server), ``server`` (its own model), if known.
        answered_in: the round that received the answer.
        tokens: the cost of a sample or a branch.
        undo: the state of the step's undo, if it has one; ``undo_name`` is the undo's function.
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
    """One round of a recorded call.

    Attributes:
        number: rounds count from 1.
        outcome: the end of the round: it ``asked``, the tool ``returned`` or ``failed``; it was
            ``interrupted``, or is ``running``; the call ``began here`` as another line.
        ended: the time of the end in seconds since the epoch, if it was noted.
        worker: the process that ran the round, if it was noted.
        asks: the ids of the questions that ended the round.
    """

    number: int
    outcome: RoundOutcome
    ended: float | None = None
    worker: str | None = None
    asks: list[str] = []


class RecordedCall(Listed):
    """A call with its whole record.

    Attributes:
        arguments: the validated arguments.
        lease: the worker that runs the call, or that last renewed the lease.
        rounds: the rounds in order.
        steps: the steps in the order in which they happened; the steps inside a branch follow it.
        waits_for: the ids of the open questions and sleeps.
        waits_until: the time when the first of these sleeps ends and the call continues.
        value: the tool's result; ``error``: the reason of its failure.
        notices: the number of delivered log lines and progress messages.
        lines: the names of the other lines of this call.
        is_complete: whether the whole record is readable; another release may have written the rest.
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

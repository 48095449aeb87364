"""Data models of a recorded call, its rounds and its steps, which JSON can represent."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, JsonValue

from anabranch._durable.transitions import CallState

UndoState = Literal["registered", "due", "done", "not needed"]


RoundOutcome = Literal["asked", "returned", "failed", "interrupted", "running", "began here"]


class _Shape(BaseModel):
    model_config = ConfigDict(frozen=True)


class Listed(_Shape):
    """A call in a list; ``version`` is that of the code which started the call, or continued it last."""

    id: str
    tool: str
    state: CallState
    started: float
    deadline: float
    principal: str = ""
    version: str = ""


class Holder(_Shape):
    worker: str
    until: float


class RecordedStep(_Shape):
    """An operation of a call, recorded or open.

    ``within`` is the path of the innermost branch or task around the step. A finished branch that is
    not folded has ``ended``. ``undo_name`` is the undo's function.
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
    """One round of a recorded call, counted from 1; the call ``began here`` as another line."""

    number: int
    outcome: RoundOutcome
    ended: float | None = None
    worker: str | None = None
    asks: list[str] = []


class RecordedCall(Listed):
    """A call with its whole record; the steps inside a branch follow the branch.

    ``waits_until`` is the time when the first open sleep ends. ``lines`` are the names of the call's
    other lines. Another release may have written the rest of a record that is not complete.
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

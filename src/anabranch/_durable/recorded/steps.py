"""Data models of a recorded call, which JSON can represent; and its steps, from all its rounds.

A state holds only the entries that later rounds need, with branches folded. So each step is taken
from the first round that has it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, JsonValue

from anabranch._durable.entries import Notes, load_entry
from anabranch._durable.transitions import CallState
from anabranch._engine import REFUSED, Answer, Compensation, Entry, Journal
from anabranch.errors import error_from_json
from anabranch.messages import Usage

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


def error_text(error: Mapping[str, Any] | None) -> str:
    if error is None:
        return "an error that is hidden from callers; see the server's log"
    try:
        return f"{error['type']}: {error_from_json(error)}"
    except (KeyError, TypeError):  # of another release
        return str(error.get("type", "an error"))


@dataclass(slots=True)
class _Known:
    kind: str
    round: int
    entry: Entry | None = None
    asked: JsonValue = None
    answered_by: Literal["client", "page", "server"] | None = None
    answered_in: int | None = None
    compensation: Compensation | None = None


@dataclass(slots=True)
class Steps:
    root: str
    _known: dict[str, _Known] = field(default_factory=dict[str, "_Known"])

    def answer(self, number: int, answers: Mapping[str, Answer], entered: Iterable[str]) -> None:
        """Add the answers to round ``number``; a page has sent the answers in ``entered``."""
        on_page = set(entered)
        for step_id, given in answers.items():
            step = self._step(step_id, "elicit", number)
            if step.entry is None:
                step.entry = Entry(step.kind, "", given.value, given.error, tokens=None)
                step.answered_by = "page" if step_id in on_page else "client"
                step.answered_in = number

    def record(self, number: int, texts: Mapping[str, str]) -> None:
        for step_id, text in texts.items():
            entry, compensation, _ = load_entry(text)
            step = self._step(step_id, entry.kind, number)
            step.compensation = compensation or step.compensation
            self._take(step, number, entry)

    def state(self, number: int, journal: Journal, notes: Notes) -> None:
        """Add the entries, undos and open questions of the ``journal`` after round ``number``."""
        for step_id, entry in journal.entries.items():
            step = self._step(step_id, entry.kind, number)
            self._take(step, number, entry)
            if entry.kind == "sample" and not entry.public:
                step.answered_by = "server"
        for due in journal.compensations:
            if (known := self._known.get(due.step_id)) is not None:
                known.compensation = due
        for step_id, (kind, _) in journal.pending.items():
            step = self._step(step_id, kind, number)
            step.asked = notes.asked.get(step_id, step.asked)

    def _step(self, step_id: str, kind: str, number: int) -> _Known:
        return self._known.setdefault(step_id, _Known(kind, number))

    def _take(self, step: _Known, number: int, entry: Entry) -> None:
        if step.entry is None:
            step.kind, step.entry = entry.kind, entry
            if entry.kind in {"elicit", "url"}:  # of a call that stayed alive
                step.answered_by, step.answered_in = "client", number
        elif entry.kind == REFUSED:
            step.entry = entry
        elif entry.tokens is not None:
            step.entry.tokens = entry.tokens

    def all(self, undone: Collection[str], *, unwound: bool, over: bool) -> list[RecordedStep]:
        """Return the steps in order, each branch followed by the steps inside it.

        The undo of a step ran if the step is in ``undone``; the other undos of an ``unwound`` call are due.
        """
        below: dict[str, dict[str, int]] = {}
        for step_id, known in self._known.items():
            self._place(step_id, known.round, below)
        rows: list[RecordedStep] = []
        waiting = [(self.root, step_id, 0) for step_id in reversed(below.get(self.root, {}))]
        while waiting:
            within, step_id, depth = waiting.pop()
            row = self._row(step_id, below[within][step_id], over=over)
            undo = self._undo_of(step_id, undone, unwound=unwound, over=over)
            rows.append(row.model_copy(update={"within": within, "depth": depth, **undo}))
            waiting += [(step_id, each, depth + 1) for each in reversed(below.get(step_id, {}))]
        return rows

    def _place(self, step_id: str, number: int, below: dict[str, dict[str, int]]) -> None:
        """Add a step, and each branch around the step, to ``below`` its enclosing branch."""
        while step_id != self.root:
            within = step_id.rpartition("/")[0] or self.root
            inside = below.setdefault(within, {})
            if step_id in inside:
                return
            inside[step_id] = number
            step_id = within

    def _row(self, step_id: str, number: int, *, over: bool) -> RecordedStep:
        known = self._known.get(step_id)
        if known is None:  # an unfolded branch or task around others
            kind = "task" if step_id.rpartition("/")[2].startswith("~") else "branch"
            state: Literal["ended", "open"] = "ended" if over else "open"
            return RecordedStep(id=step_id, kind=kind, within="", round=number, state=state)
        entry = known.entry
        error = None if entry is None else _error_of(entry)
        return RecordedStep(
            id=step_id,
            kind=known.kind,
            within="",
            round=number,
            state="open" if entry is None else "done" if error is None else "failed",
            value=None if entry is None else entry.value,
            error=error,
            asked=known.asked,
            answered_by=known.answered_by,
            answered_in=known.answered_in,
            tokens=_tokens(entry),
        )

    def _undo_of(
        self, step_id: str, undone: Collection[str], *, unwound: bool, over: bool
    ) -> dict[str, object]:
        known = self._known.get(step_id)
        if known is None or known.compensation is None:
            return {}
        state: UndoState
        if step_id in undone:
            state = "done"
        elif unwound:
            state = "due"
        else:
            state = "not needed" if over else "registered"
        return {"undo": state, "undo_name": known.compensation.undo}


def _error_of(entry: Entry) -> str | None:
    if entry.kind == REFUSED:
        return "refused: the question changed after the user saw it, and is asked again"
    return None if entry.error is None else error_text(entry.error)


def _tokens(entry: Entry | None) -> int | None:
    """Return the cost of a sample or a branch; for a sample not yet charged, the usage of its reply."""
    if entry is None or entry.kind not in {"sample", "branch"}:
        return None
    usage = entry.value.get("usage") if isinstance(entry.value, dict) else None
    if entry.kind == "branch" or entry.tokens is not None or usage is None:
        return entry.tokens
    used = Usage.model_validate(usage)
    return used.input_tokens + used.output_tokens

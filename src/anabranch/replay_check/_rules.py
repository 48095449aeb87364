"""The rules of the checks, by name: the reason and the remedy that a finding shows."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Finding:
    """A line of a tool's code that is not safe to replay, with the reason and a fix.

    Attributes:
        rule: the name of the rule, in kebab-case.
        file: the source file.
        line: the line, counted from 1.
        column: the column, counted from 1.
        reason: the problem in a replay, in one sentence.
        fix: the correction, in one sentence.
        step: the id of the step at which two runs differed; ``None`` for a finding in the source.
        first: the first run's action at this step.
        second: the replay's action at this step.
    """

    rule: str
    file: str
    line: int
    column: int
    reason: str
    fix: str
    step: str | None = None
    first: str | None = None
    second: str | None = None

    def __str__(self) -> str:
        lines = [f"{self.file}:{self.line}:{self.column}: {self.rule}: {self.reason} {self.fix}"]
        if self.first is not None or self.second is not None:
            lines += [f"  first run: {self.first}", f"  replay:    {self.second}"]
        return "\n".join(lines)

    def to_json(self) -> dict[str, str | int]:
        """Return the finding as JSON, without fields that are ``None``."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def seen_from(self, folder: Path) -> Finding:
        """Return the finding with a path relative to ``folder`` if the file is inside it."""
        path = Path(self.file)
        inside = path.is_absolute() and path.is_relative_to(folder)
        return replace(self, file=str(path.relative_to(folder))) if inside else self


class Rule(NamedTuple):
    reason: str
    fix: str


RULES: dict[str, Rule] = {
    # -- calls outside of steps ------------------------------------------------------------------
    "clock": Rule(
        "{} returns a different time in every round.",
        "Use ctx.now(), or read the clock in ctx.step.",
    ),
    "randomness": Rule(
        "{} returns a different value in every round.",
        "Use ctx.random or ctx.uuid(), or draw in ctx.step.",
    ),
    "process-identity": Rule(
        "{} differs from process to process, and each round may run in a different one.",
        "Use ctx.uuid() or ctx.call_id for a name, hashlib for a digest.",
    ),
    "network": Rule(
        "{} uses the network again in every round, and may return something else.",
        "Call it through ctx.step.",
    ),
    "subprocess": Rule("{} starts a process again in every round.", "Call it through ctx.step."),
    "file-access": Rule(
        "{} accesses the file system again in every round, and may find something else.",
        "Call it through ctx.step.",
    ),
    "database": Rule("{} accesses the database again in every round.", "Call it through ctx.step."),
    "console-output": Rule(
        "{} writes the same again in every round.",
        "Use ctx.log or ctx.notify, which send a message once.",
    ),
    "console-input": Rule(
        "{} reads from the server's terminal again in every round.", "Ask the user with ctx.elicit."
    ),
    # -- the end of a round ------------------------------------------------------------------------
    "ask-in-finally": Rule(
        "{} in a finally block is skipped whenever a round ends or the call is cancelled.",
        "Ask after the try statement.",
    ),
    "await-in-finally": Rule(
        "{} in a finally block runs at the end of every round.",
        "Only close resources in the block; move an effect into ctx.step, or after the try statement.",
    ),
    "timeout-around-ask": Rule(
        "{} around a question starts again in every round, so it never expires on a stateless server.",
        "Give ctx.branch the timeout= instead.",
    ),
    "work-during-ask": Rule(
        "{} runs during a question: the end of the round cancels it, and the next round starts it again.",
        "Run it in ctx.step if its work matters, or mark the line as replay-safe if it does not.",
    ),
    # -- values that must be the same in every replay --------------------------------------------------------
    "unordered-asks": Rule(
        "{} starts questions in an order that changes from run to run, and so do their names.",
        "Use a list in a fixed order, or give each question its own key=.",
    ),
    "global-mutation": Rule(
        "{} is changed again in every round, and stays changed for the next call.",
        "Use a local variable, or change it in ctx.step.",
    ),
    "self-mutation": Rule(
        "{} is changed again in every round, on a tool that all calls share.",
        "Use a local variable, or change it in before, after or ctx.step.",
    ),
    # -- uses of the context ------------------------------------------------------------------------
    "not-awaited": Rule(
        "{} is not awaited, so it never happens.",
        "Write await before it, or pass it to ctx.gather.",
    ),
    # -- differences between two runs ----------------------------------------------------------------
    "different-ask": Rule(
        "The question {} differs when the round is replayed.",
        "Build it only from arguments, answers and values of steps.",
    ),
    "different-asks": Rule(
        "The question {} is asked in only one of two runs of the same round.",
        "Decide what to ask only by arguments, answers and values of steps.",
    ),
    "different-outcome": Rule(
        "The tool's {} differs when its last round is replayed.",
        "Build it only from arguments, answers and values of steps.",
    ),
    "different-notice": Rule(
        "The notice {} differs when the round is replayed.",
        "Build it only from arguments, answers and values of steps.",
    ),
    "different-step": Rule(
        "The replay of a round does something else at {}.",
        "Decide what to do only by arguments, answers and values of steps.",
    ),
    "context-use": Rule("{}", "{}"),  # the sentences of the error
    "interrupted-step": Rule(
        "The step {} was interrupted before it was recorded, so a replay runs it again.",
        "Limit its time with the timeout= of a ctx.branch around it.",
    ),
    "unrecordable-value": Rule(
        "The value of {} cannot be recorded, so nothing after it can be replayed.",
        "Return plain data, a pydantic model or a dataclass.",
    ),
    "not-suspended": Rule(
        "The tool continued at {} although its round had ended.",
        "Do not catch BaseException or CancelledError around a question.",
    ),
}

"""The rules: what each is called, why it matters, what to do instead.

Owns every word of a finding but its place. Which calls a rule is about is in ``calls.py``.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["RULES", "Rule"]


class Rule(NamedTuple):
    """``reason`` has a place for what was found; ``fix`` says what to do."""

    reason: str
    fix: str


RULES: dict[str, Rule] = {
    # -- what is called outside of steps ---------------------------------------------------------
    "clock": Rule(
        "{} tells another time in every round.",
        "Use ctx.now(), or read the clock in ctx.step.",
    ),
    "randomness": Rule(
        "{} draws something else in every round.",
        "Use ctx.random or ctx.uuid(), or draw in ctx.step.",
    ),
    "process-identity": Rule(
        "{} is another value in every process, and each round may run in another one.",
        "Use ctx.uuid() or ctx.call_id for a name, hashlib for a digest.",
    ),
    "network": Rule(
        "{} goes over the network again in every round, and may bring something else.",
        "Call it through ctx.step.",
    ),
    "subprocess": Rule(
        "{} starts a process again in every round.",
        "Call it through ctx.step.",
    ),
    "file-access": Rule(
        "{} reaches for the file system again in every round, where it may find something else.",
        "Call it through ctx.step.",
    ),
    "database": Rule(
        "{} talks to the database again in every round.",
        "Call it through ctx.step.",
    ),
    "console-output": Rule(
        "{} writes the same again in every round.",
        "Tell the client with ctx.log or ctx.notify, which speak once.",
    ),
    "console-input": Rule(
        "{} reads from the server's own terminal, again in every round.",
        "Ask the person with ctx.elicit.",
    ),
    # -- how a round ends --------------------------------------------------------------------------
    "swallowed-cancellation": Rule(
        "{} swallows the cancellation that ends a round, so the call fails with SuspensionError.",
        "Catch Exception instead, or raise the cancellation again.",
    ),
    "ask-in-finally": Rule(
        "{} in a finally block is left out whenever a round ends or the call is cancelled.",
        "Ask after the try statement.",
    ),
    "await-in-finally": Rule(
        "{} in a finally block runs at the end of every round.",
        "Leave only closing to the block; put an effect into ctx.step, or after the try statement.",
    ),
    "timeout-around-ask": Rule(
        "{} around a question begins anew in every round, and so never ends on a stateless server.",
        "Give ctx.branch the timeout= instead.",
    ),
    # -- what replays must do alike ----------------------------------------------------------------
    "unordered-asks": Rule(
        "{} starts questions in an order that changes from run to run, and their names with it.",
        "Use a list in a fixed order, or give each question a key= of its own.",
    ),
    "global-mutation": Rule(
        "{} is changed again in every round, and stays changed for the next call.",
        "Keep it in a local variable, or change it in ctx.step.",
    ),
    "self-mutation": Rule(
        "{} is changed again in every round, on a tool that all calls share.",
        "Keep it in a local variable, or change it in before, after or ctx.step.",
    ),
    # -- what a run has shown ----------------------------------------------------------------------
    "different-ask": Rule(
        "The question {} is another one when the round is replayed.",
        "Build it from arguments, answers and values of steps alone.",
    ),
    "different-asks": Rule(
        "The question {} is asked in one of two runs of the same round only.",
        "Decide what to ask by arguments, answers and values of steps alone.",
    ),
    "different-outcome": Rule(
        "The tool's {} is another one when its last round is replayed.",
        "Build it from arguments, answers and values of steps alone.",
    ),
    "different-notice": Rule(
        "The notice {} is another one when the round is replayed.",
        "Build it from arguments, answers and values of steps alone.",
    ),
    "different-step": Rule(
        "The replay of a round goes another way at {}.",
        "Decide what to do by arguments, answers and values of steps alone.",
    ),
    "interrupted-step": Rule(
        "The step {} was cut off before it was recorded, so that a replay runs it again.",
        "Limit its time by the timeout= of a ctx.branch around it.",
    ),
    "unrecordable-value": Rule(
        "The value of {} cannot be recorded, so that nothing after it can be replayed.",
        "Return plain data, a pydantic model or a dataclass.",
    ),
    "not-suspended": Rule(
        "The tool went on at {} although its round had ended.",
        "Do not catch BaseException or CancelledError around a question.",
    ),
}

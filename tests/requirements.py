"""What the author's API must do: an id, where that is required, and one sentence.

Tests name the ids they show by ``@pytest.mark.requirement("id")``. ``tests/test_requirements.py``
sees to it that each id has a test and that no test names an unknown one. ``SP`` ids are pitfalls
of tools like these, each easy to fall into and hard to see.
"""

from typing import NamedTuple

__all__ = ["REQUIREMENTS", "Requirement"]


class Requirement(NamedTuple):
    """Where it is required, and what is to be seen."""

    source: str
    behaviour: str


_PITFALL = "A pitfall of tools like these"
_SEED = "Seed 000, the checklist of its tests"
_BAD_INPUT = "Bad input, and what it gets"
_LAW = "The laws"
_CONTRACT = "The author's API"

REQUIREMENTS: dict[str, Requirement] = {
    # -- pitfalls ------------------------------------------------------------------------------
    "SP1": Requirement(_PITFALL, "What a tool requires is checked before its code runs."),
    "SP2": Requirement(_PITFALL, "Model preferences are forwarded."),
    "SP3": Requirement(_PITFALL, "Structured samples and retries are charged like plain ones."),
    "SP4": Requirement(_PITFALL, "Timeouts of branch, tool and call are enforced."),
    "SP5": Requirement(_PITFALL, "Runtime policy is a ceiling: no branch raises it."),
    "SP6": Requirement(_PITFALL, "A prompt is checked against the budget before it is sent."),
    "SP7": Requirement(_PITFALL, "The parent's messages are a snapshot."),
    "SP8": Requirement(
        _PITFALL,
        "Token limit, timeout, parallel branches, cancellation and errors of sub-branches are tested.",
    ),
    "SP9": Requirement(
        _PITFALL, "A second question while one is open is supported, or refused; never lost."
    ),
    "SP10": Requirement(_PITFALL, "An answer that nobody waits for is dropped."),
    "SP12": Requirement(_PITFALL, "Cancelling a call stops its body."),
    "SP15": Requirement(_PITFALL, "An error of the client reaches the ask that it belongs to."),
    "SP16": Requirement(_PITFALL, "Tool calls and parsed values of samples reach the author."),
    # -- building tools ------------------------------------------------------------------------
    "builder.phases": Requirement(
        _SEED, "before, client and after run in turn, the outer two once."
    ),
    "builder.server-context": Requirement(_SEED, "before and after may learn of the call's id."),
    "builder.validates-parameters": Requirement(_SEED, "Arguments are checked by the parameters."),
    # -- sampling ------------------------------------------------------------------------------
    "sampling.auto-tracked": Requirement(_SEED, "Prompts continue the conversation and are kept."),
    "sampling.explicit": Requirement(_SEED, "Explicit messages are sent as they are, not kept."),
    "sampling.function-responses": Requirement(_SEED, "A reply may be computed from the request."),
    "sampling.parsed": Requirement(_SEED, "Valid JSON is parsed."),
    "sampling.parse-error": Requirement(_SEED, "Invalid JSON and unfitting JSON are told apart."),
    "sampling.retry-loop": Requirement(_SEED, "An unfitting reply is retried with the reason."),
    "sampling.tools": Requirement(_SEED, "Tools and tool choice are passed on, calls come back."),
    "sampling.multi-turn-tools": Requirement(_SEED, "Tool results are sent in the next turn."),
    "sampling.decision-tree": Requirement(_SEED, "A second sample builds on the first."),
    "sampling.schema-tool": Requirement(_SEED, "A __schema__ tool carries the schema."),
    "sampling.exchange": Requirement(_SEED, "An exchange has two messages, three with a schema."),
    # -- branches ------------------------------------------------------------------------------
    "branch.runs": Requirement(_SEED, "A branch runs its function and returns its value."),
    "branch.inherits": Requirement(_SEED, "A branch inherits messages by default."),
    "branch.fresh": Requirement(_SEED, "A branch can start fresh."),
    "branch.depth": Requirement(_SEED, "Depth is tracked, from 0."),
    "branch.depth-limit": Requirement(_SEED, "The depth limit is enforced."),
    "branch.depth-override": Requirement(_SEED, "A branch may set a limit within the ceiling."),
    # -- questions -----------------------------------------------------------------------------
    "elicit.emit": Requirement(_SEED, "A question goes out, and its answer is awaited."),
    "elicit.context": Requirement(_SEED, "A question may carry data for whoever draws the form."),
    "elicit.accept-decline": Requirement(_SEED, "A question may be accepted or declined."),
    "elicit.sequence": Requirement(_SEED, "Several questions in sequence have sequential ids."),
    "elicit.validate": Requirement(_SEED, "Answers are validated."),
    "elicit.unknown-key": Requirement(_SEED, "An unknown key is refused."),
    "elicit.in-branch": Requirement(_SEED, "A host may keep questions to depth 0."),
    "elicit.exchange": Requirement(_SEED, "Accepted answers, and they alone, have an exchange."),
    "elicit.with-arguments": Requirement(_SEED, "An exchange can be given its arguments."),
    "elicit.extended-messages": Requirement(_SEED, "An exchange extends a conversation."),
    "notices": Requirement(_SEED, "log and notify reach the client."),
    # -- the mock client -----------------------------------------------------------------------
    "mock.samples": Requirement(_SEED, "Samples are texts, results or functions."),
    "mock.elicits": Requirement(_SEED, "Answers are contents, outcomes or functions."),
    "mock.exhausted": Requirement(_SEED, "A queue that runs dry raises, naming it."),
    "mock.records": Requirement(_SEED, "Calls are recorded; reset clears records, not queues."),
    "mock.capabilities": Requirement(_SEED, "A disabled capability raises at call time."),
    # -- steps ---------------------------------------------------------------------------------
    "step.idempotency-key": Requirement(_CONTRACT, "Each effect has a key, the same in replays."),
    # -- bad input -----------------------------------------------------------------------------
    "bad.arguments": Requirement(
        _BAD_INPUT, "Invalid parameters get one message listing every field; no phase has run."
    ),
    "bad.answer": Requirement(
        _BAD_INPUT,
        "An unfitting answer is asked for again, three times at most, then ElicitValidationError.",
    ),
    "bad.serialization": Requirement(
        _BAD_INPUT, "A value that cannot cross is an error naming the step and the type."
    ),
    "bad.changed-question": Requirement(
        _BAD_INPUT, "A tool that changes what it asks under replay is told the step and the remedy."
    ),
    "bad.swallowed-cancellation": Requirement(
        _BAD_INPUT, "A tool that swallows cancellation is told the step and the remedy."
    ),
    "bad.rounds": Requirement(_BAD_INPUT, "The author is warned at the eighth round."),
    # -- laws ----------------------------------------------------------------------------------
    "law.2": Requirement(_LAW, "An effect is recorded before its value is seen."),
    "law.3": Requirement(_LAW, "A notification is delivered once."),
    "law.4": Requirement(
        _LAW, "A branch's inner history never reaches its parent; its one value does."
    ),
    "law.5": Requirement(_LAW, "No inner limit widens an outer one."),
    "law.6": Requirement(_LAW, "Any path of the tree projects to a valid provider request."),
    "law.8": Requirement(
        _LAW, "What was pending before a crash is pending after it (with a store)."
    ),
}

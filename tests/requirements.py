"""The manifest of requirements: an id, a source and one sentence for each behaviour.

A test names the requirements that it shows by ``@pytest.mark.requirement("id")``.
``tests/test_requirements.py`` checks that each id has a test and that no test names an unknown one.
"""

from typing import NamedTuple

__all__ = ["REQUIREMENTS", "Requirement"]


class Requirement(NamedTuple):
    """Where the behaviour is promised, and the behaviour."""

    source: str
    behaviour: str


_PITFALL = "A common defect of libraries for tools that ask"
_AUTHOR = "docs/writing-tools.md and the pages that it names"
_TESTING = "docs/testing-tools.md"
_ERRORS = "docs/limits-and-errors.md"
_LAW = "docs/design.md, Laws"

REQUIREMENTS: dict[str, Requirement] = {
    # -- pitfalls ------------------------------------------------------------------------------
    "pitfall.requirements-first": Requirement(
        _PITFALL, "A tool's required capabilities are checked before its code runs."
    ),
    "pitfall.model-preferences": Requirement(_PITFALL, "Model preferences are forwarded."),
    "pitfall.retries-charged": Requirement(
        _PITFALL, "Structured samples and retries are charged like plain ones."
    ),
    "pitfall.timeouts": Requirement(_PITFALL, "Timeouts of branch, tool and call are enforced."),
    "pitfall.policy-ceiling": Requirement(
        _PITFALL, "Runtime policy is a ceiling: no branch raises it."
    ),
    "pitfall.budget-before-sending": Requirement(
        _PITFALL, "A prompt is checked against the budget before it is sent."
    ),
    "pitfall.parent-snapshot": Requirement(_PITFALL, "The parent's messages are a snapshot."),
    "pitfall.limits-and-branches": Requirement(
        _PITFALL,
        "Token limits, timeouts, cancellation and errors hold in sub-branches, too, also in parallel ones.",
    ),
    "pitfall.second-question": Requirement(
        _PITFALL, "A second question while one is open is asked or refused, never lost."
    ),
    "pitfall.late-answer": Requirement(
        _PITFALL, "An answer to a question that is no longer open is dropped."
    ),
    "pitfall.cancelled-call": Requirement(_PITFALL, "Cancelling a call stops its body."),
    "pitfall.client-error": Requirement(
        _PITFALL, "A client's error is raised at the ask that it answers."
    ),
    "pitfall.whole-reply": Requirement(
        _PITFALL, "A sample returns the tool calls and the parsed value of its reply."
    ),
    # -- building tools ------------------------------------------------------------------------
    "builder.phases": Requirement(
        _AUTHOR, "before, client and after run in turn, the outer two once."
    ),
    "builder.server-context": Requirement(_AUTHOR, "before and after may take the call's id."),
    "builder.validates-parameters": Requirement(
        _AUTHOR, "Arguments are checked by the parameters."
    ),
    # -- sampling ------------------------------------------------------------------------------
    "sampling.auto-tracked": Requirement(
        _AUTHOR, "A prompt and its reply are added to the conversation."
    ),
    "sampling.explicit": Requirement(
        _AUTHOR, "Explicit messages are sent unchanged and not added."
    ),
    "sampling.function-responses": Requirement(
        _AUTHOR, "A reply may be computed from the request."
    ),
    "sampling.parsed": Requirement(_AUTHOR, "Valid JSON is parsed."),
    "sampling.parse-error": Requirement(
        _AUTHOR, "Invalid JSON and JSON of another schema get different reasons."
    ),
    "sampling.retry-loop": Requirement(
        _AUTHOR, "A reply that does not fit is retried with the reason."
    ),
    "sampling.tools": Requirement(
        _AUTHOR, "Tools and tool choice are sent, tool calls are returned."
    ),
    "sampling.multi-turn-tools": Requirement(_AUTHOR, "Tool results are sent in the next turn."),
    "sampling.decision-tree": Requirement(_AUTHOR, "A second sample builds on the first."),
    "sampling.schema-tool": Requirement(_AUTHOR, "A __schema__ tool carries the schema."),
    "sampling.exchange": Requirement(_AUTHOR, "An exchange has two messages, three with a schema."),
    # -- branches ------------------------------------------------------------------------------
    "branch.runs": Requirement(_AUTHOR, "A branch runs its function and returns its value."),
    "branch.inherits": Requirement(_AUTHOR, "A branch inherits messages by default."),
    "branch.fresh": Requirement(_AUTHOR, "A branch can start fresh."),
    "branch.depth": Requirement(_AUTHOR, "Depth is tracked, from 0."),
    "branch.depth-limit": Requirement(_AUTHOR, "The depth limit is enforced."),
    "branch.depth-override": Requirement(_AUTHOR, "A branch may set a limit within the ceiling."),
    # -- questions -----------------------------------------------------------------------------
    "elicit.emit": Requirement(_AUTHOR, "A question is sent, and its answer is awaited."),
    "elicit.context": Requirement(
        _AUTHOR, "A question may carry data for the client that shows the form."
    ),
    "elicit.accept-decline": Requirement(_AUTHOR, "A question may be accepted or declined."),
    "elicit.sequence": Requirement(_AUTHOR, "Several questions in sequence have sequential ids."),
    "elicit.validate": Requirement(_AUTHOR, "Answers are validated."),
    "elicit.unknown-key": Requirement(_AUTHOR, "An unknown key is refused."),
    "elicit.in-branch": Requirement(_AUTHOR, "A host may allow questions at depth 0 only."),
    "elicit.exchange": Requirement(_AUTHOR, "Accepted answers have an exchange; no others do."),
    "elicit.with-arguments": Requirement(_AUTHOR, "An exchange can be given its arguments."),
    "elicit.extended-messages": Requirement(_AUTHOR, "An exchange extends a conversation."),
    "notices": Requirement(_AUTHOR, "log and notify reach the client."),
    # -- the mock client -----------------------------------------------------------------------
    "mock.samples": Requirement(_TESTING, "Samples are texts, results or functions."),
    "mock.elicits": Requirement(_TESTING, "Answers are contents, outcomes or functions."),
    "mock.exhausted": Requirement(_TESTING, "An exhausted queue raises an error that names it."),
    "mock.records": Requirement(_TESTING, "Calls are recorded; reset clears records, not queues."),
    "mock.capabilities": Requirement(_TESTING, "A disabled capability raises at call time."),
    # -- steps ---------------------------------------------------------------------------------
    "step.idempotency-key": Requirement(_AUTHOR, "Each effect has a key, the same in replays."),
    # -- bad input -----------------------------------------------------------------------------
    "bad.arguments": Requirement(
        _ERRORS,
        "Invalid arguments get one message that lists every field; no code of the tool has run.",
    ),
    "bad.answer": Requirement(
        _ERRORS,
        "A question whose answer does not fit is asked again, at most three times, then ElicitValidationError.",
    ),
    "bad.serialization": Requirement(
        _ERRORS, "A value that cannot be serialised is an error naming the step and the type."
    ),
    "bad.changed-question": Requirement(
        _ERRORS,
        "A tool that asks something else in a replay fails with an error naming the step and the remedy.",
    ),
    "bad.swallowed-cancellation": Requirement(
        _ERRORS,
        "A tool that swallows its cancellation fails with an error naming the step and the remedy.",
    ),
    "bad.rounds": Requirement(_ERRORS, "The author is warned at the eighth round."),
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

"""The errors that this library raises for authors and callers of tools.

    AnabranchError
    ├── ToolError                     the tool refuses the call, in a message for the caller
    │   ├── UnreachableError          the store of calls does not answer now
    │   ├── agents.QuestionAnsweredError  the question already has another answer
    │   └── agents.QuestionExpiredError   the time for an answer to the question is over
    ├── InvalidArgumentsError         the arguments do not fit the tool's parameters
    ├── CapabilityError               neither client nor server offers what the tool needs
    ├── BranchLimitError              a limit that encloses the branch was reached
    │   ├── BranchDepthError
    │   ├── BranchTokenError
    │   └── BranchTimeoutError
    ├── StepFailed                    a step, question or sample ended in an error
    ├── SampleValidationError         the model's replies did not fit the schema
    ├── ConverseRoundsError           the model still calls tools after the last round
    ├── ElicitValidationError         the user's answers did not fit the schema
    ├── ConcurrentElicitError         this chat or client shows one question at a time
    ├── ElicitInBranchError           this chat or client lets only the tool itself ask
    ├── SerializationError            a value cannot be written to the journal
    ├── NonDeterminismError           a replay differs from the record
    │   └── ContextUseError           ctx is used where operations get no id
    ├── SuspensionError               the tool caught the cancellation that ends its round
    ├── NoProgressError               the call's rounds are cut off repeatedly
    ├── UnsupportedRuntimeError       tools cannot run on this Python or event loop
    ├── InvalidTokenError             a token is invalid or expired
    ├── CallExpiredError              the call has expired, and its effects are undone
    ├── OtherVersionError             the call waits for a server with the code that started it
    ├── IdempotencyKeyError           a first request cannot be carried out under its key
    ├── StoreError                    a store cannot do its work
    │   ├── UnknownCallError          the store has no such call
    │   └── tree.RefusedError         the tree store refuses a node, a result or a ref
    ├── rounds.InvalidAnswerError     an answer to an open question is refused, before anything runs
    ├── models.ModelError             a model cannot be opened, or cannot answer a request
    │   └── models.ProviderError      a provider was asked and gave no complete answer
    ├── chat.ChatClientError          a chat's server cannot be reached, refuses, or fails
    ├── agents.TurnLimitError         a turn of an agent reached one of its limits
    ├── memory.LevelError             the caller may not change memories of a level
    ├── memory.UnknownMemoryError     the caller sees no such memory
    ├── memory.WithheldError          a text could not be searched for secrets
    ├── folding.FoldingError          an operation on an agent's branch is refused
    │   ├── folding.UnknownBranchError      there is no such branch
    │   ├── folding.BranchNotActiveError    the branch has ended
    │   ├── folding.BudgetExhaustedError    the parent has fewer tokens left
    │   └── folding.TooManyBranchesError    too many branches are open
    ├── AnswerError                   an answerer answers with an error
    ├── mcp.SagaRoundsExceededError   a saga asked more often than its caller allows
    ├── replay_check.NoSourceError    the source of a tool cannot be read
    └── testing.MockExhausted         a mock client has no answer left

A name with a dot, such as ``tree.RefusedError``, is defined in that public module; all others are
defined here. A message is built from the error's fields, and names the problem first, then the
remedy. The fields are plain JSON. So the journal can store an error, and a later round or another
process can raise an error of the same type with the same message (:func:`error_to_json`).

Callers may see the message of every error in this module, except for ``StoreError``, which is about
the server's database. So a message never quotes another library's exception, whose text may hold
secrets. ``StepFailed.detail`` has that text, for the author's code and the server's log. A message
may quote an error that the client sent, since the client knows its text.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from anabranch.errors._extras import (
    MissingExtraError,
    find_framework,
    install_command,
    needs_extra,
    typed_command,
)
from anabranch.errors._forms import (
    FULL,
    AnabranchError,
    author_line,
    error_from_json,
    error_id,
    error_to_json,
    format_for_author,
    is_authors,
    masked,
    with_error_id,
)

__all__ = [
    "AnabranchError",
    "BranchDepthError",
    "BranchLimitError",
    "BranchTimeoutError",
    "BranchTokenError",
    "CallExpiredError",
    "CapabilityError",
    "ConcurrentElicitError",
    "ContextUseError",
    "ConverseRoundsError",
    "ElicitInBranchError",
    "ElicitValidationError",
    "IdempotencyKeyError",
    "InvalidArgumentsError",
    "InvalidTokenError",
    "NoProgressError",
    "NonDeterminismError",
    "OtherVersionError",
    "SampleValidationError",
    "SerializationError",
    "StepFailed",
    "StoreError",
    "SuspensionError",
    "ToolError",
    "UnknownCallError",
    "UnreachableError",
    "UnsupportedRuntimeError",
]


class ToolError(AnabranchError):
    """An error that a tool raises to refuse a call; the caller sees the message unchanged."""

    def __init__(self, message: str) -> None:
        super().__init__(message, message=message)


class UnreachableError(ToolError, recordable=False):  # the outcome of the call is not known yet
    """The store of calls does not answer; no data is lost, and the call can continue later."""


@dataclass(eq=False, repr=False)
class InvalidArgumentsError(AnabranchError):
    """The arguments do not fit the tool's parameters; ``problems`` has a problem per field."""

    tool: str
    problems: dict[str, str]

    def __str__(self) -> str:
        listed = "; ".join(f"{field}: {problem}" for field, problem in self.problems.items())
        return (
            f"Invalid arguments for tool {self.tool!r}: {listed}. Correct them and call it again."
        )


@dataclass(eq=False, repr=False)
class CapabilityError(AnabranchError):
    """Neither the client nor the server offers ``capability`` (``sampling``, ``elicitation``, …).

    ``unreachable`` means that the connection carries no questions, even if the client supports
    questions.
    """

    capability: str
    _: KW_ONLY
    unreachable: bool = False

    def __str__(self) -> str:
        if self.capability == "sampling.documents":
            return (
                "This tool asks a model about a document, and MCP cannot carry documents to the"
                " client's model. Give the server its own sampler, or send the document's text."
            )
        reason = "which the client did not declare. Use a client that supports this capability"
        if self.unreachable:
            reason = (
                "and this connection cannot carry questions to the client (a stateless or JSON-only"
                " HTTP session of the handshake era). Connect with protocol 2026-07-28, or over a"
                " session with a stream"
            )
        own = _OWN_SAMPLER if self.capability in {"sampling", "sampling.tools"} else ""
        return f"This tool needs {self.capability!r}, {reason}{own}."


_OWN_SAMPLER = ", or give the server its own sampler, or the chat a model (--model NAME)"


class BranchLimitError(AnabranchError):
    """A branch reached its limit, or the limit of an enclosing branch, and was stopped."""


@dataclass(eq=False, repr=False)
class BranchDepthError(BranchLimitError):
    """A branch would be nested deeper than ``max_depth``; the tool itself has depth 0."""

    depth: int
    max_depth: int

    def __str__(self) -> str:
        return (
            f"A branch at depth {self.depth} would exceed max_depth={self.max_depth}."
            " Nest fewer branches, or raise max_depth in every limit that encloses this one."
        )


@dataclass(eq=False, repr=False)
class BranchTokenError(BranchLimitError):
    """The branch at ``path`` would use ``used`` tokens, more than its ``budget``."""

    path: str
    used: int
    budget: int

    def __str__(self) -> str:
        return (
            f"Branch {self.path!r} needs {self.used} tokens but may use {self.budget}."
            " Shorten the messages, or raise max_tokens in every limit that encloses the branch."
        )


@dataclass(eq=False, repr=False)
class BranchTimeoutError(BranchLimitError):
    """The branch at ``path`` did not end within ``timeout`` seconds of its start."""

    path: str
    timeout: float

    def __str__(self) -> str:
        return (
            f"Branch {self.path!r} was stopped after its timeout of {self.timeout:g} s."
            " Answer sooner, or raise timeout in every limit that encloses it."
        )


@dataclass(eq=False, repr=False)
class StepFailed(AnabranchError):
    """A step's function raised an error, or the client or model answered a question with an error.

    ``step_id`` is the id of the step or question. ``error`` is the type name of the original
    exception, or the code of the client's error. ``detail`` is the original text, and ``data`` the
    JSON of the client's error. With ``from_client``, the message includes the text, since the
    client wrote it.

    Catch this error to continue without the step. The round that ran the step raises it, with the
    original exception as ``__cause__``; every replay raises the same type.
    """

    step_id: str
    error: str
    detail: str = ""
    _: KW_ONLY
    from_client: bool = False
    data: Any = None

    @property
    def refused(self) -> bool:
        """Whether the user or the client's policy refused a sample (error -1 in MCP)."""
        return self.from_client and self.error == str(REFUSED)

    def __str__(self) -> str:
        if self.from_client:
            said = textwrap.shorten(self.detail, _SHOWN, placeholder=" …") or "no reason given"
            how = f"failed: the client answered with {self.error}"
            if self.refused:
                how = "was refused on the client's side"
            return f"Step {self.step_id!r} {how} ({said}). Catch StepFailed to handle it."
        return (
            f"Step {self.step_id!r} failed with {self.error}. Catch StepFailed to handle it;"
            " its detail is in the server's log."
        )


REFUSED = -1
"""The code of the error with which a user refuses, in MCP."""
_SHOWN = 500
"""Maximum characters of a client's text in a message."""


@dataclass(eq=False, repr=False)
class SampleValidationError(AnabranchError):
    """No reply of the model fitted the schema; ``last_text`` is the last of ``attempts`` replies."""

    step_id: str
    attempts: int
    reason: str
    last_text: str = ""

    def __str__(self) -> str:
        return (
            f"The model's reply to {self.step_id!r} did not fit after {self.attempts} attempts:"
            f" {self.reason}. Simplify the schema, or describe the wanted form in the prompt."
        )


@dataclass(eq=False, repr=False)
class ConverseRoundsError(AnabranchError):
    """The model was asked ``max_rounds`` times in the branch at ``path``, and still calls tools."""

    path: str
    max_rounds: int

    def __str__(self) -> str:
        return (
            f"The model still calls tools after {self.max_rounds} requests in {self.path!r}."
            " Raise max_rounds of ctx.converse, or offer it fewer tools."
        )


@dataclass(eq=False, repr=False)
class ElicitValidationError(AnabranchError):
    """None of the user's ``attempts`` answers fitted the schema of the question."""

    step_id: str
    attempts: int
    reason: str

    def __str__(self) -> str:
        return (
            f"The answer to {self.step_id!r} did not fit after {self.attempts} attempts:"
            f" {self.reason}. Call the tool again, and give an answer that fits the question's"
            " schema."
        )


@dataclass(eq=False, repr=False)
class ConcurrentElicitError(AnabranchError):
    """A tool asked two questions at the same time, but this chat or client shows only one."""

    step_id: str
    pending: str

    def __str__(self) -> str:
        return (
            f"Question {self.step_id!r} was asked while {self.pending!r} is still open, and this"
            " host shows one question at a time. Await the first answer before you ask again."
        )


@dataclass(eq=False, repr=False)
class ElicitInBranchError(AnabranchError):
    """A branch asked the user, but this chat or client lets only the tool itself ask."""

    step_id: str
    depth: int

    def __str__(self) -> str:
        return (
            f"Question {self.step_id!r} was asked at depth {self.depth}, and this host lets only"
            " the tool itself (depth 0) ask the user. Return from the branch and ask there."
        )


class InvalidTokenError(AnabranchError):
    """A sealed state, handle or token is invalid or expired; only the server's log says why."""

    def __init__(self) -> None:
        super().__init__("Invalid or expired token. Call the tool again.")


@dataclass(eq=False, repr=False)
class CallExpiredError(AnabranchError):
    """No client continued the call in time; the server undoes its effects, now or soon."""

    call: str

    def __str__(self) -> str:
        return (
            f"The call {self.call!r} has expired: it was not continued in time, so its effects are"
            " undone. Call the tool again."
        )


@dataclass(eq=False, repr=False)
class OtherVersionError(AnabranchError):
    """Code of ``version`` started the call, and this server's code would continue it differently.

    The request ran nothing and undid nothing. The call waits for a server with that version.
    """

    call: str
    version: str

    def __str__(self) -> str:
        return (
            f"Version {self.version!r} of the code started the call {self.call!r}, and this"
            " server's version cannot continue it. The call waits, and nothing is undone: send the"
            f" same request again when a server of version {self.version!r} runs."
        )


@dataclass(eq=False, repr=False)
class IdempotencyKeyError(AnabranchError):
    """A first request cannot use its idempotency key; the server ran nothing."""

    problem: str

    def __str__(self) -> str:
        return f"The idempotency key cannot be used: {self.problem}."


class StoreError(AnabranchError):
    """A store cannot read or write; the message names the reason and the remedy.

    The store is unreachable, locked for too long, damaged, closed, or of a newer version, or the
    call to write does not exist. If a connection broke during a request, the write may have
    happened. Every method of a store except ``finish`` can be retried.
    """


class UnknownCallError(StoreError, recordable=False):  # never the outcome of a step
    """The store has no call with this id: the call never started, or was deleted."""

    def __init__(self, call_id: str) -> None:
        super().__init__(
            f"The store has no call {call_id!r}; it never started, or was deleted.", call_id=call_id
        )


@dataclass(eq=False, repr=False)
class SerializationError(AnabranchError):
    """A step or tool returned a value that cannot be stored as JSON for the next round."""

    step_id: str
    type_name: str
    reason: str = ""

    def __str__(self) -> str:
        return (
            f"The value of {self.step_id!r} is of type {self.type_name}, which cannot be written to"
            f" the journal{': ' + self.reason if self.reason else ''}. Return plain JSON or a"
            " pydantic model, annotate the function's return type, and keep connections and files"
            " inside the step."
        )


@dataclass(eq=False, repr=False)
class NonDeterminismError(AnabranchError):
    """A replay did something else than the recorded run.

    ``expected`` names the record at ``step_id``, ``found`` the tool's action in the replay. The
    call has ended, and ran no effect after the difference.
    """

    step_id: str
    expected: str
    found: str

    def __str__(self) -> str:
        return (
            f"Replay differs at {self.step_id!r}: recorded {self.expected}, now {self.found}. Take"
            " time, randomness and I/O from ctx (ctx.now, ctx.uuid, ctx.random, ctx.step); if the"
            " tool was changed while this call was open, call it again."
        )


@dataclass(eq=False, repr=False)
class ContextUseError(NonDeterminismError):
    """``ctx`` was used where operations get no id, so a replay could not recognise the operation.

    ``found`` names the code, and ``remedy`` the correction. ``step_id`` is the path of the
    operation, or ``ctx`` if the operation has no path. The tool can catch the error and continue.
    """

    remedy: str

    def __str__(self) -> str:
        at = "" if self.step_id == "ctx" else f"at {self.step_id!r}, "
        return f"ctx was used {at}{self.found}. {self.remedy}"


@dataclass(eq=False, repr=False)
class SuspensionError(AnabranchError):
    """The tool caught the cancellation that ends its round, and continued."""

    step_ids: Sequence[str]
    found: str

    def __str__(self) -> str:
        return (
            f"The tool could not be suspended at {_quoted(self.step_ids)}: {self.found}. Do not"
            " catch BaseException or asyncio.CancelledError around an ask without raising it again."
        )


@dataclass(eq=False, repr=False)
class NoProgressError(AnabranchError):
    """The call made no progress: ``rounds`` rounds in a row were cut off at ``place``.

    ``step_ids`` are the ids of the questions that were open in these rounds.
    """

    step_ids: Sequence[str]
    place: str
    rounds: int

    def __str__(self) -> str:
        return (
            f"The tool makes no progress: {self.rounds} rounds in a row were cut off at"
            f" {self.place}, while {_quoted(self.step_ids)} was open. Run this work in ctx.step,"
            " which is never cut off, or raise patience=."
        )


def _quoted(step_ids: Sequence[str]) -> str:
    return ", ".join(map(repr, step_ids))


@dataclass(eq=False, repr=False)
class UnsupportedRuntimeError(AnabranchError, RuntimeError):
    """Tools cannot run on this Python or event loop, whose tasks do not show their waits.

    ``runtime`` names the versions of Python, the event loop and anyio; ``problems`` lists the
    failed checks.
    """

    runtime: str
    problems: Sequence[str]

    def __str__(self) -> str:
        return (
            f"A call cannot run on {self.runtime}: {'; '.join(self.problems)}. Run it in a task of"
            " asyncio or uvloop, with versions that anabranch supports."
        )

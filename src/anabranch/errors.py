"""The hierarchy of errors that the author or the caller of a tool can meet.

    AnabranchError
    ├── ToolError                     the tool refuses the call, in a message for the caller
    ├── InvalidArgumentsError         the arguments do not fit the tool's parameters
    ├── CapabilityError               neither client nor server offers what the tool needs
    ├── BranchLimitError              a limit that encloses the branch was reached
    │   ├── BranchDepthError
    │   ├── BranchTokenError
    │   └── BranchTimeoutError
    ├── StepFailed                    a step or an ask ended in an error
    ├── SampleValidationError         the model's replies did not fit what was asked for
    ├── ElicitValidationError         the person's answers did not fit the schema
    ├── ConcurrentElicitError         this host shows one question at a time
    ├── ElicitInBranchError           this host lets only the tool itself ask the person
    ├── SerializationError            a value cannot be written to the journal
    ├── NonDeterminismError           a replay asked for something else than was recorded
    ├── SuspensionError               the body swallowed the cancellation that ends its round
    ├── NoProgressError               the call's rounds are cut off again and again
    ├── UnsupportedRuntimeError       this Python's tasks do not show what they wait for
    ├── InvalidTokenError             a token is not valid, or no longer
    ├── StoreError                    a store cannot do its work
    │   ├── UnknownCallError          the store has no such call
    │   └── tree.RefusedError         the tree store refuses a node, a result or a ref
    ├── models.ModelError             a model cannot be opened, or cannot answer this
    │   └── models.ProviderError      a provider was asked and did not give a whole answer
    ├── chat.SessionError             a line of a chat cannot be carried out
    ├── agents.TurnLimitError         a turn of an agent reached one of its limits
    ├── AnswerError                   raised by an answerer: it answers with an error
    ├── mcp.SagaRoundsExceededError   a saga asked more often than its caller allows
    ├── replay_check.NoSourceError    the source of a tool cannot be checked
    └── testing.MockExhausted         a mock client has no answer left

Names with a dot are defined in that public module; the others in this one. A constructor here
takes facts and builds the message from them: what happened, then what to do about it. The facts
are plain JSON, so that an error can be written to the journal and raised again, with the same type
and the same message, in a later round or another process (:func:`error_to_json`).

The message of every error in this module but ``StoreError``, which is about the server's database,
may be shown to the caller. It therefore never quotes the text of a foreign exception, which may
hold secrets; that text is in ``StepFailed.detail``, for the author's code and the server's log.
A client's own error is no secret to the client, and is quoted.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = [
    "AnabranchError",
    "BranchDepthError",
    "BranchLimitError",
    "BranchTimeoutError",
    "BranchTokenError",
    "CapabilityError",
    "ConcurrentElicitError",
    "ElicitInBranchError",
    "ElicitValidationError",
    "InvalidArgumentsError",
    "InvalidTokenError",
    "NoProgressError",
    "NonDeterminismError",
    "SampleValidationError",
    "SerializationError",
    "StepFailed",
    "StoreError",
    "SuspensionError",
    "ToolError",
    "UnknownCallError",
    "UnsupportedRuntimeError",
    "error_from_json",
    "error_to_json",
]


_rebuilders: dict[str, Callable[..., AnabranchError]] = {}


class AnabranchError(Exception):
    """The root of all errors; ``facts`` holds what the message was built from, as plain JSON."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # A subclass of an author's cannot be rebuilt by its name, nor one without named facts.
        if cls.__module__ == __name__ and "__init__" in cls.__dict__:
            _rebuilders[cls.__name__] = cls

    def __init__(self, message: str, /, **facts: object) -> None:
        super().__init__(message)
        self.facts: dict[str, Any] = facts

    def __reduce__(self) -> tuple[Any, ...]:
        # An author's subclass may have any constructor; the state is all that is needed.
        return (_blank, (type(self), self.args), self.__dict__)


def _blank(cls: type[AnabranchError], args: tuple[Any, ...]) -> AnabranchError:
    return cls.__new__(cls, *args)


def error_to_json(error: BaseException) -> dict[str, Any] | None:
    """Return the JSON for :func:`error_from_json`; ``None`` if the error cannot be rebuilt."""
    if isinstance(error, StoreError):  # about the server's database, never the outcome of a step
        return None
    name = type(error).__name__
    if isinstance(error, AnabranchError) and _rebuilders.get(name) is type(error):
        return {"type": name, **error.facts}
    return None


def error_from_json(data: Mapping[str, Any]) -> AnabranchError:
    """Return the error that :func:`error_to_json` was given.

    Raises:
        KeyError: its type is not defined in this module.
    """
    facts = dict(data)
    return _rebuilders[facts.pop("type")](**facts)


class ToolError(AnabranchError):
    """Raised by a tool to refuse a call; the caller is shown the message unchanged."""

    def __init__(self, message: str) -> None:
        super().__init__(message, message=message)


class InvalidArgumentsError(AnabranchError):
    """The arguments do not fit the parameters; ``problems`` maps each field to its problem."""

    def __init__(self, tool: str, problems: Mapping[str, str]) -> None:
        self.tool = tool
        self.problems: dict[str, str] = dict(problems)
        listed = "; ".join(f"{field}: {problem}" for field, problem in self.problems.items())
        super().__init__(
            f"Invalid arguments for tool {tool!r}: {listed}. Correct them and call it again.",
            tool=tool,
            problems=self.problems,
        )


class CapabilityError(AnabranchError):
    """Neither the client nor the server offers ``capability`` (``sampling``, ``elicitation``, …).

    ``unreachable`` says that the connection carries no questions, whatever the client supports.
    """

    def __init__(self, capability: str, *, unreachable: bool = False) -> None:
        self.capability = capability
        self.unreachable = unreachable
        message = "which the client did not declare. Call it from a client that supports it"
        if unreachable:
            message = (
                "and this connection cannot carry questions to the client (a stateless or JSON-only"
                " HTTP session of the handshake era). Connect with protocol 2026-07-28, or over a"
                " session with a stream"
            )
        own = _OWN_SAMPLER if capability.startswith("sampling") else ""
        facts: dict[str, Any] = {"unreachable": True} if unreachable else {}
        super().__init__(
            f"This tool needs {capability!r}, {message}{own}.", capability=capability, **facts
        )


_OWN_SAMPLER = ", or give the server a sampler of its own, or the chat a model (--model NAME)"


class BranchLimitError(AnabranchError):
    """A limit that encloses a branch was reached; nothing further is spent on its behalf."""


class BranchDepthError(BranchLimitError):
    """A branch would be deeper than ``max_depth``; the root of a call is at depth 0."""

    def __init__(self, depth: int, max_depth: int) -> None:
        self.depth = depth
        self.max_depth = max_depth
        super().__init__(
            f"A branch at depth {depth} would exceed max_depth={max_depth}."
            " Nest fewer branches, or raise max_depth in every limit that encloses this one.",
            depth=depth,
            max_depth=max_depth,
        )


class BranchTokenError(BranchLimitError):
    """The branch at ``path`` needs ``used`` tokens, more than its ``budget``."""

    def __init__(self, path: str, used: int, budget: int) -> None:
        self.path = path
        self.used = used
        self.budget = budget
        super().__init__(
            f"Branch {path!r} needs {used} tokens but may use {budget}."
            " Shorten what is sent, or raise max_tokens in every limit that encloses it.",
            path=path,
            used=used,
            budget=budget,
        )


class BranchTimeoutError(BranchLimitError):
    """The branch at ``path`` had not ended ``timeout`` seconds after its start."""

    def __init__(self, path: str, timeout: float) -> None:
        self.path = path
        self.timeout = timeout
        super().__init__(
            f"Branch {path!r} was stopped after its timeout of {timeout:g} s."
            " Answer sooner, or raise timeout in every limit that encloses it.",
            path=path,
            timeout=timeout,
        )


class StepFailed(AnabranchError):
    """A step's function raised, or an ask was answered with an error.

    ``step_id`` names the step, ``error`` is the type name of the original exception (or the code
    of the client's error), ``detail`` its text. The text is part of the message if
    ``from_client``: what the client has said may be shown to it. Catch this error to continue
    without the step; the same type is raised in the round that ran the step (there with the
    original exception as ``__cause__``) and in every replay.
    """

    def __init__(
        self, step_id: str, error: str, detail: str = "", *, from_client: bool = False
    ) -> None:
        self.step_id = step_id
        self.error = error
        self.detail = detail
        self.from_client = from_client
        message = f"Step {step_id!r} failed with {error}. Catch StepFailed to handle it; its detail"
        message += " is in the server's log."
        if from_client:
            said = textwrap.shorten(detail, _SHOWN, placeholder=" …") or "no reason given"
            message = f"Step {step_id!r} failed: the client answered with {error} ({said}). Catch"
            message += " StepFailed to handle it."
        facts: dict[str, Any] = {"step_id": step_id, "error": error, "detail": detail}
        super().__init__(message, **facts, **({"from_client": True} if from_client else {}))


_SHOWN = 500
"""Characters that a message shows of a client's text."""


class SampleValidationError(AnabranchError):
    """None of ``attempts`` replies of the model fitted; ``last_text`` is the text of the last."""

    def __init__(self, step_id: str, attempts: int, reason: str, last_text: str = "") -> None:
        self.step_id = step_id
        self.attempts = attempts
        self.reason = reason
        self.last_text = last_text
        super().__init__(
            f"The model's reply to {step_id!r} did not fit after {attempts} attempts: {reason}."
            " Simplify the schema, or describe the wanted form in the prompt.",
            step_id=step_id,
            attempts=attempts,
            reason=reason,
            last_text=last_text,
        )


class ElicitValidationError(AnabranchError):
    """None of ``attempts`` answers of the person fitted the schema that was asked for."""

    def __init__(self, step_id: str, attempts: int, reason: str) -> None:
        self.step_id = step_id
        self.attempts = attempts
        self.reason = reason
        super().__init__(
            f"The answer to {step_id!r} did not fit after {attempts} attempts: {reason}."
            " Call the tool again and answer in the form that is asked for.",
            step_id=step_id,
            attempts=attempts,
            reason=reason,
        )


class ConcurrentElicitError(AnabranchError):
    """A question was asked while another was open, on a host that shows one at a time."""

    def __init__(self, step_id: str, pending: str) -> None:
        self.step_id = step_id
        self.pending = pending
        super().__init__(
            f"Question {step_id!r} was asked while {pending!r} is still open, and this host shows"
            " one question at a time. Await the first answer before you ask again.",
            step_id=step_id,
            pending=pending,
        )


class ElicitInBranchError(AnabranchError):
    """A sub-branch asked the person, on a host that allows this at depth 0 only."""

    def __init__(self, step_id: str, depth: int) -> None:
        self.step_id = step_id
        self.depth = depth
        super().__init__(
            f"Question {step_id!r} was asked at depth {depth}, and this host lets only the tool"
            " itself (depth 0) ask the person. Return from the branch and ask there.",
            step_id=step_id,
            depth=depth,
        )


class SerializationError(AnabranchError):
    """The value of ``step_id`` is of a type that cannot be carried to another round."""

    def __init__(self, step_id: str, type_name: str, reason: str = "") -> None:
        self.step_id = step_id
        self.type_name = type_name
        self.reason = reason
        super().__init__(
            f"The value of {step_id!r} is of type {type_name}, which cannot be written to the"
            f" journal{': ' + reason if reason else ''}. Return plain JSON or a pydantic model,"
            " annotate the function's return type, and keep connections and files inside the step.",
            step_id=step_id,
            type_name=type_name,
            reason=reason,
        )


class NonDeterminismError(AnabranchError):
    """A replay did something else than the recorded run.

    ``expected`` and ``found`` name what was recorded at ``step_id`` and what the body did there.
    The call has ended; no effect was run after the difference was found.
    """

    def __init__(self, step_id: str, expected: str, found: str) -> None:
        self.step_id = step_id
        self.expected = expected
        self.found = found
        super().__init__(
            f"Replay differs at {step_id!r}: recorded {expected}, now {found}. Take time, randomness"
            " and I/O from ctx (ctx.now, ctx.uuid, ctx.random, ctx.step); if the tool was changed"
            " while this call was open, call it again.",
            step_id=step_id,
            expected=expected,
            found=found,
        )


class SuspensionError(AnabranchError):
    """The body swallowed the cancellation that ends its round, and went on."""

    def __init__(self, step_ids: Sequence[str], found: str) -> None:
        self.step_ids: list[str] = list(step_ids)
        self.found = found
        super().__init__(
            f"The tool could not be suspended at {', '.join(map(repr, self.step_ids))}: {found}."
            " Do not catch BaseException or asyncio.CancelledError around an ask without raising"
            " it again.",
            step_ids=self.step_ids,
            found=found,
        )


class NoProgressError(AnabranchError):
    """``rounds`` rounds in a row were cut off at ``place`` and brought nothing new.

    ``step_ids`` are the questions that were open meanwhile.
    """

    def __init__(self, step_ids: Sequence[str], place: str, rounds: int) -> None:
        self.step_ids: list[str] = list(step_ids)
        self.place = place
        self.rounds = rounds
        super().__init__(
            f"The tool makes no progress: {rounds} rounds in a row were cut off at {place}, while"
            f" {', '.join(map(repr, self.step_ids))} was open. Run this work in ctx.step, which is"
            " never cut off, or raise patience=.",
            step_ids=self.step_ids,
            place=place,
            rounds=rounds,
        )


class UnsupportedRuntimeError(AnabranchError, RuntimeError):
    """Calls cannot run here: what a task waits for cannot be read, or is misread.

    ``runtime`` names the versions of Python, of the event loop and of anyio; ``problems`` says
    what was found.
    """

    def __init__(self, runtime: str, problems: Sequence[str]) -> None:
        self.runtime = runtime
        self.problems: list[str] = list(problems)
        super().__init__(
            f"A call cannot run on {runtime}: {'; '.join(self.problems)}. Run it in a task of"
            " asyncio or uvloop, with versions that anabranch supports.",
            runtime=runtime,
            problems=self.problems,
        )


class InvalidTokenError(AnabranchError):
    """A token was refused; the reason is in the server's log and nowhere else."""

    def __init__(self) -> None:
        super().__init__("Invalid or expired token. Call the tool again.")


class StoreError(AnabranchError):
    """A store cannot do its work; the message says why, and what to do.

    The store is unreachable, locked for too long, damaged, of a newer version, or closed, or was
    asked to write to a call that it does not have. If a connection broke during a request, the
    write may have happened nevertheless; every method of a store but ``finish`` can be retried.
    """


class UnknownCallError(StoreError):
    """The store has no such call: it was never begun, or was pruned."""

    def __init__(self, call_id: str) -> None:
        super().__init__(
            f"The store has no call {call_id!r}; it was never begun, or was pruned.",
            call_id=call_id,
        )

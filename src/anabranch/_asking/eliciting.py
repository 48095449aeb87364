"""Asking the person: one question, repeated while its answer does not fit.

Owns what turns an author's ``ctx.elicit(...)`` into requests and an answer into ``Accepted``,
``Declined`` or ``Cancelled``. Who shows the question is an edge's business.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple

from pydantic import BaseModel, JsonValue, ValidationError

from anabranch._engine import AskKind, Entry, Scope, fingerprint
from anabranch.elicitation import Accepted, Cancelled, Declined, ElicitResult, describe, form_schema
from anabranch.errors import (
    ConcurrentElicitError,
    ElicitInBranchError,
    ElicitValidationError,
    error_to_json,
)
from anabranch.messages import (
    ElicitReply,
    ElicitRequest,
    Exchange,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    UrlRequest,
    assistant,
    user,
)

__all__ = ["ElicitJob", "Policy", "run_elicit", "run_elicit_url"]

ASKED_AGAIN = 3


@dataclass(frozen=True, slots=True)
class Policy:
    """How this host shows questions: one at a time, only those of the tool itself."""

    one_at_a_time: bool = False
    root_only: bool = False

    def check(self, scope: Scope, step_id: str, kind: AskKind, asked: str) -> None:
        """Pass if the question may be asked now.

        Raises:
            ElicitInBranchError, ConcurrentElicitError: it may not.
        """
        branch, call = scope.branch, scope.strand.call
        if step_id in call.journal.pending:  # it was allowed in an earlier round
            return
        if self.root_only and branch.depth > 0:
            raise ElicitInBranchError(step_id, branch.depth)
        if self.one_at_a_time and (others := call.open.ids("elicit", "url")):
            refusal = ConcurrentElicitError(step_id, others[0])
            # Recorded: by the next round the other question is answered, and this one, which was
            # refused in the tool's eyes, would be asked after all.
            call.record(step_id, Entry(kind, asked, error=error_to_json(refusal)), branch)
            raise refusal


class ElicitJob(NamedTuple):
    """All that one ``ctx.elicit`` asks for.

    ``name`` is the declared elicitation's key. ``policy`` is called if the question must really
    be asked, and may refuse.
    """

    scope: Scope
    step_id: str
    model: type[BaseModel]
    message: str
    name: str | None = None
    context: JsonValue = None
    policy: Callable[[], Policy] = Policy


async def run_elicit(job: ElicitJob) -> ElicitResult[Any]:
    """Ask, and ask again with the reason while the answer does not fit, three times at the most.

    Raises:
        ElicitValidationError: the last answer did not fit either.
        CapabilityError: nobody can be asked.
        ElicitInBranchError, ConcurrentElicitError: this host does not allow the question now.
        StepFailed: the client answered with an error.
    """
    call = job.scope.strand.call
    message, reason = job.message, ""
    for attempt in range(1, ASKED_AGAIN + 2):
        entry = await _ask(job, call.new_attempt(job.step_id, attempt), message)
        try:
            action, given = _read(entry.value)
            if action != "accept":
                return Declined() if action == "decline" else Cancelled()
            content = job.model.model_validate(given)
        except ValidationError as problem:
            reason = describe(problem)
            message = f"{job.message}\n\n(The last answer did not fit: {reason}.)"
        else:
            return Accepted(content, partial(_exchange, job, content))
    raise ElicitValidationError(job.step_id, ASKED_AGAIN + 1, reason)


def _read(value: JsonValue) -> tuple[str, object]:
    """Return what the person did, and the content.

    Raises:
        ValidationError: that is no reply.
    """
    if isinstance(value, dict) and value.get("action") == "accept":  # nearly always
        content = value.get("content")
        if isinstance(content, dict):
            return "accept", content
    reply = ElicitReply.model_validate(value)
    return reply.action, reply.content or {}


@lru_cache(maxsize=512)
def _form_fingerprint(model: type[BaseModel]) -> str:
    return fingerprint(form_schema(model))


async def _ask(job: ElicitJob, step_id: str, message: str) -> Entry:
    asked = fingerprint(message, _form_fingerprint(job.model), job.context)

    def admitted() -> ElicitRequest:
        job.policy().check(job.scope, step_id, "elicit", asked)
        return ElicitRequest(
            message=message,
            requested_schema=form_schema(job.model),
            context=job.context,
            key=job.name,
        )

    return await job.scope.strand.call.ask(job.scope, step_id, "elicit", asked, admitted)


async def run_elicit_url(
    scope: Scope, step_id: str, message: str, url: str, policy: Policy
) -> Accepted[None] | Declined | Cancelled:
    """Send the person to ``url``; ask again, as above, if what comes back is no reply.

    Raises:
        ElicitValidationError: the last answer was no reply either.
        ElicitInBranchError, ConcurrentElicitError: this host does not allow the question now.
        StepFailed: the client answered with an error.
    """
    call, reason = scope.strand.call, ""
    asked = fingerprint(message, url)

    def admitted(again: str) -> UrlRequest:
        policy.check(scope, again, "url", asked)
        elicitation_id = f"{call.journal.call_id}:{step_id}"
        return UrlRequest(message=message, url=url, elicitation_id=elicitation_id)

    for attempt in range(1, ASKED_AGAIN + 2):
        again = call.new_attempt(step_id, attempt)
        entry = await call.ask(scope, again, "url", asked, partial(admitted, again))
        try:
            action, _ = _read(entry.value)
        except ValidationError as problem:
            reason = describe(problem)
        else:
            if action == "accept":
                return Accepted(None)
            return Declined() if action == "decline" else Cancelled()
    raise ElicitValidationError(step_id, ASKED_AGAIN + 1, reason)


def _exchange(job: ElicitJob, content: BaseModel) -> Exchange:
    use = ToolUseBlock(id=job.step_id, name=job.name or "elicit", input={})
    answer = TextBlock(text=content.model_dump_json(by_alias=True))
    result = ToolResultBlock(tool_use_id=job.step_id, content=(answer,))
    return Exchange((assistant([TextBlock(text=job.message), use]), user([result])))

"""Asking the person: one question, repeated while its answer does not fit.

Owns what turns an author's ``ctx.elicit(...)`` into requests and an answer into ``Accepted``,
``Declined`` or ``Cancelled``. Who shows the question is an edge's business.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, JsonValue, ValidationError

from anabranch.call import Scope, fingerprint
from anabranch.elicitation import Accepted, Cancelled, Declined, ElicitResult, describe, form_schema
from anabranch.errors import ConcurrentElicitError, ElicitInBranchError, ElicitValidationError
from anabranch.messages import (
    ElicitReply,
    ElicitRequest,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    UrlRequest,
    assistant,
    user,
)
from anabranch.sampling import Exchange

__all__ = ["ElicitJob", "run_elicit", "run_elicit_url"]

ASKED_AGAIN = 3


@dataclass(frozen=True, slots=True)
class ElicitJob:
    """All that one ``ctx.elicit`` asks for. ``name`` is the declared elicitation's key."""

    scope: Scope
    step_id: str
    model: type[BaseModel]
    message: str
    name: str | None = None
    context: JsonValue = None
    one_at_a_time: bool = False
    root_only: bool = False


async def run_elicit(job: ElicitJob) -> ElicitResult[Any]:
    """Ask, and ask again with the reason while the answer does not fit, three times at the most.

    Raises:
        ElicitValidationError: the last answer did not fit either.
        ElicitInBranchError, ConcurrentElicitError: this host does not allow the question now.
        StepFailed: the client answered with an error.
    """
    call = job.scope.strand.call
    schema = form_schema(job.model)
    message = job.message
    for attempt in range(1, ASKED_AGAIN + 2):
        step_id = call.new_attempt(job.step_id, attempt)
        request = ElicitRequest(
            message=message, requested_schema=schema, context=job.context, key=job.name
        )

        def admitted(step_id: str = step_id, request: ElicitRequest = request) -> ElicitRequest:
            _check_allowed(job, step_id)
            return request

        asked = fingerprint(message, schema, job.context)
        entry = await call.ask(job.scope, step_id, "elicit", asked, admitted)
        try:
            reply = ElicitReply.model_validate(entry.value)
            if reply.action != "accept":
                return Declined() if reply.action == "decline" else Cancelled()
            content = job.model.model_validate(reply.content or {})
        except ValidationError as problem:
            reason = describe(problem)
            message = f"{job.message}\n\n(The last answer did not fit: {reason}.)"
        else:
            return Accepted(content, _exchange(job, content))
    raise ElicitValidationError(job.step_id, ASKED_AGAIN + 1, reason)


def _check_allowed(job: ElicitJob, step_id: str) -> None:
    if job.root_only and job.scope.branch.depth > 0:
        raise ElicitInBranchError(step_id, job.scope.branch.depth)
    if job.one_at_a_time:
        others = job.scope.strand.call.open_asks("elicit")
        if others:
            raise ConcurrentElicitError(step_id, others[0])


async def run_elicit_url(
    scope: Scope, step_id: str, message: str, url: str
) -> Accepted[None] | Declined | Cancelled:
    """Send the person to ``url``.

    Raises:
        StepFailed: the client answered with an error.
    """
    call = scope.strand.call

    def request() -> UrlRequest:
        elicitation_id = f"{call.journal.call_id}:{step_id}"
        return UrlRequest(message=message, url=url, elicitation_id=elicitation_id)

    entry = await call.ask(scope, step_id, "url", fingerprint(message, url), request)
    try:
        action = ElicitReply.model_validate(entry.value).action
    except ValidationError:
        action = "cancel"
    if action == "accept":
        return Accepted(None)
    return Declined() if action == "decline" else Cancelled()


def _exchange(job: ElicitJob, content: BaseModel) -> Exchange:
    use = ToolUseBlock(id=job.step_id, name=job.name or "elicit", input={})
    answer = TextBlock(text=content.model_dump_json())
    result = ToolResultBlock(tool_use_id=job.step_id, content=(answer,))
    return Exchange((assistant([TextBlock(text=job.message), use]), user([result])))

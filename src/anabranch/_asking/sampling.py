"""Runs one ``ctx.sample(...)``: its requests to a model, its retries, and its tokens."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from anabranch._asking.conversation import Conversation, IdentityMemo
from anabranch._asking.elicitation import describe
from anabranch._asking.host import DOCUMENTS, Host, Runnable
from anabranch._asking.replies import SCHEMA_TOOL, WantedForm, refusal
from anabranch._asking.tokens import ADMISSION_MARGIN, prompt_tokens, said, usage_tokens
from anabranch._engine import REFUSED, Call, Entry, Journal, Scope, fingerprint
from anabranch._text import json_line
from anabranch.errors import SampleValidationError, StepFailed
from anabranch.messages import (
    DocumentBlock,
    Exchange,
    FileBlock,
    Message,
    SampleReply,
    SampleRequest,
    TextBlock,
    ToolCall,
    ToolResultBlock,
    ToolSpec,
    ToolUseBlock,
    Usage,
    assistant,
    user,
)

P = TypeVar("P")
logger: logging.Logger = logging.getLogger("anabranch.asking")

DEFAULT_MAX_TOKENS = 1024
ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class SampleResult(Generic[P]):
    """A model's reply, as ``ctx.sample`` and ``ctx.converse`` return it.

    Attributes:
        text: the text of the reply.
        parsed: the reply as a value of ``schema``; ``None`` without a schema.
        tool_calls: the calls of tools that the model requests.
        stop_reason: ``endTurn``, ``maxTokens``, ``toolUse``, ``stopSequence`` or another reason of
            the provider.
        model: the name of the model that answered.
        usage: tokens reported by the provider; ``None`` without a report.
        exchange: prompt and reply as messages (with a schema: prompt, ``__schema__`` tool use with
            empty input, and its result).
    """

    text: str
    parsed: P
    tool_calls: tuple[ToolCall, ...] = ()
    stop_reason: str | None = None
    model: str = ""
    usage: Usage | None = None
    exchange: Exchange = field(default_factory=Exchange)


@dataclass(frozen=True, slots=True)
class SampleJob:
    """The parameters of one ``ctx.sample``; ``form`` is not yet in ``request``.

    Attributes:
        place: the place of prompt and reply in the conversation, 0 for none.
        answers_calls: malformed tool calls get a result each, so that the reply need not be repeated.
    """

    call: Call[Any]
    host: Host
    scope: Scope
    step_id: str
    request: SampleRequest
    needs: list[str]
    form: WantedForm | None = None
    place: int = 0
    answers_calls: bool = False


def check_options(
    messages: object,
    prompt: object,
    max_tokens: int | None,
    schema: object,
    tools: object,
    tool_choice: object,
) -> None:
    if (prompt is None) == (messages is None):
        raise ValueError("sample() takes either a prompt or messages=")
    if schema is not None and (tools is not None or tool_choice is not None):
        raise ValueError("sample() takes either schema= or tools=, not both")
    if tool_choice is not None and not tools:
        raise ValueError("sample(tool_choice=…) needs tools= to choose from")
    if max_tokens is not None and max_tokens <= 0:
        raise ValueError(f"max_tokens must be positive, got {max_tokens}")


def request_of(**fields: Any) -> SampleRequest:  # noqa: ANN401 - the author's, of any type
    if not fields["messages"]:
        raise ValueError("sample(messages=…) needs at least one message")
    given = {name: value for name, value in fields.items() if value is not None}
    given.setdefault("max_tokens", DEFAULT_MAX_TOKENS)
    try:
        return SampleRequest.model_validate(given, by_alias=False, by_name=True)
    except ValidationError as problem:
        raise ValueError(f"sample() got an invalid argument: {describe(problem)}") from problem


def as_spec(tool: Runnable[Any] | ToolSpec) -> ToolSpec:
    if isinstance(tool, ToolSpec):
        return tool
    return ToolSpec(name=tool.name, description=tool.description, input_schema=tool.input_schema)


def needs_of(request: SampleRequest) -> list[str]:
    has_documents = any(_documents_in(request.messages))
    needs = {"sampling.tools": bool(request.tools), DOCUMENTS: has_documents}
    return ["sampling", *(name for name, is_needed in needs.items() if is_needed)]


def _has_document(message: Message) -> bool:
    return any(
        isinstance(block, DocumentBlock | FileBlock)
        for outer in message.content
        for block in (outer.content if isinstance(outer, ToolResultBlock) else (outer,))
    )


_documents_in: IdentityMemo[Message, bool] = IdentityMemo(_has_document)


async def run_sample(job: SampleJob, conversation: Conversation) -> SampleResult[Any]:
    """Ask until the reply fits, at most three times; a reply to a changed request does not count."""
    job.host.require(*job.needs)
    own = job.host.asks_own_model(*job.needs)
    messages, attempt, others = job.request.messages, 0, 0
    while True:
        attempt += 1
        request = _request(job, messages, own=own)
        step_id = job.call.cursor.new_attempt(job.step_id, attempt + others)
        try:
            reply = await _ask(job, step_id, request, own=own)
        except StepFailed:
            if own or job.host.sampler is None:
                raise
            own = True  # the client refuses, or answers nonsense
            reply = None
        if reply is None:
            attempt, others = attempt - 1, others + 1
            continue
        parsed, problem = _check(job, reply)
        if problem is None:
            if job.form is not None and job.form.drawn is not None:
                branch, drawn = job.scope.branch, job.form.drawn
                again = partial(_parsed, job.form, reply)
                parsed = job.call.operations.first(branch, step_id, drawn, parsed, again)
            result = _result(job, reply, parsed)
            if job.place:
                conversation.append(
                    job.scope, job.place, _as_history(result, job.request.messages[-1])
                )
            return result
        if attempt == ATTEMPTS:
            raise SampleValidationError(job.step_id, attempt, problem, said(reply))
        messages = (*messages, assistant(said(reply)), user(_correction(job, problem)))


def _request(job: SampleJob, messages: tuple[Message, ...], *, own: bool) -> SampleRequest:
    changed: dict[str, Any] = {"messages": messages}
    if job.form is not None:
        system = job.request.system_prompt
        if (job.host.own if own else job.host.capabilities).has("sampling.tools"):
            spec = ToolSpec(
                name=SCHEMA_TOOL,
                description="Give the answer in this form.",
                input_schema=job.form.tool_schema,
            )
            changed |= {"tools": (spec,), "tool_choice": "required"}
        else:
            schema = json_line(job.form.schema)
            form = f"Reply with JSON only, fitting this JSON Schema:\n{schema}"
            changed["system_prompt"] = f"{system}\n\n{form}" if system else form
    return job.request.model_copy(update=changed)


async def _ask(
    job: SampleJob, step_id: str, request: SampleRequest, *, own: bool
) -> SampleReply | None:
    call, branch = job.call, job.scope.branch

    def admitted() -> SampleRequest:
        """Return the request to send, cut to the remaining budget; refuse it if none remains."""
        changed: dict[str, Any] = {}
        able = job.host.own if own else job.host.capabilities
        if request.include_context is not None and not able.has("sampling.context"):
            changed["include_context"] = None  # the protocol lets clients ignore this field
        if branch.account.is_limited:
            prompt, most = math.ceil(prompt_tokens(request) * ADMISSION_MARGIN), request.max_tokens
            if (granted := call.cursor.budgets.reserve(step_id, branch, prompt, most)) < most:
                changed["max_tokens"] = granted
        return request.model_copy(update=changed) if changed else request

    asked = _request_fingerprint(request)
    responder = job.host.respond if own else None
    try:
        entry = await call.operations.ask(job.scope, step_id, "sample", asked, admitted, responder)
        is_refused = entry.kind == REFUSED
        reply = _reply_in(entry) if is_refused else _read(job, step_id, entry, own=own)
    except BaseException:
        if not call.scheduler.closing:  # a closing round leaves the request open for the next round
            call.cursor.budgets.release(step_id)
        raise
    if entry.tokens is None:
        used = 0 if reply is None else usage_tokens(prompt_tokens(request), reply)
        call.cursor.budgets.settle(step_id, entry, branch, used)
    return None if is_refused else reply


def _reply_in(entry: Entry) -> SampleReply | None:
    try:
        return SampleReply.model_validate(entry.value)
    except ValidationError:
        return None


def _request_fingerprint(request: SampleRequest) -> str:
    # The remaining budget differs from round to round, so the fingerprint omits max_tokens.
    options = request.model_dump(mode="json", exclude={"max_tokens", "messages"}, exclude_none=True)
    return fingerprint(options, "".join(_message_fingerprints(request.messages)))


def _pin_message(message: Message) -> str:
    return fingerprint(message.model_dump(mode="json", exclude_none=True))


_message_fingerprints: IdentityMemo[Message, str] = IdentityMemo(_pin_message)


def count_answers(journal: Journal) -> None:
    """Reserve the tokens of answered samples, which are charged when the body reads the answers.

    The body may ask something new before that, which must not spend these tokens.
    """
    for step_id, (held, granted) in journal.reserved.items():
        if (entry := journal.entries.get(step_id)) is None:
            continue
        used = 0
        if entry.error is None:
            if (reply := _reply_in(entry)) is None:  # as _read() will find
                continue
            used = usage_tokens(held - granted, reply)
        journal.reserved[step_id] = (used, granted)


def _read(job: SampleJob, step_id: str, entry: Entry, *, own: bool) -> SampleReply:
    """Return the reply in a recorded answer; record a failure, so that a replay ends the same way."""
    try:
        return SampleReply.model_validate(entry.value)
    except ValidationError as problem:
        why = describe(problem)
        if own:
            logger.warning("the sampler's reply to step %r is not valid: %s", step_id, why)
        failure = StepFailed(step_id, "InvalidReply", why, from_client=not own)
        job.call.cursor.reject(entry, failure)
        raise failure from problem


def _parsed(form: WantedForm, reply: SampleReply) -> object:
    return form.read(reply)[0]


def _check(job: SampleJob, reply: SampleReply) -> tuple[Any, str | None]:
    if job.form is not None:
        return job.form.read(reply)
    if job.request.tool_choice == "required" and not reply.tool_calls:
        return None, "no tool was called, although one is required"
    if not job.answers_calls and reply.stop_reason != "maxTokens":
        for call in reply.tool_calls:
            if call.malformed is not None:
                return None, refusal(call.name, call.malformed)
    return None, None


def _correction(job: SampleJob, problem: str) -> str:
    wanted = "JSON only, in the wanted form" if job.form is not None else "a tool call"
    return f"That did not fit: {problem}. Reply again with {wanted}."


def _result(job: SampleJob, reply: SampleReply, parsed: Any) -> SampleResult[Any]:  # noqa: ANN401 - as the form
    prompt = job.request.messages[-1]
    if job.form is None:
        exchange = Exchange((prompt, Message(role="assistant", content=reply.content)))
    else:
        use = ToolUseBlock(id=job.step_id, name=SCHEMA_TOOL, input={})
        text = TextBlock(text=job.form.dump(parsed))
        result = ToolResultBlock(tool_use_id=job.step_id, content=(text,))
        exchange = Exchange((prompt, assistant([use]), user([result])))
    return SampleResult(
        text=reply.text if job.form is None else said(reply),
        parsed=parsed,
        tool_calls=reply.tool_calls if job.form is None else (),
        stop_reason=reply.stop_reason,
        model=reply.model,
        usage=reply.usage,
        exchange=exchange,
    )


def _as_history(result: SampleResult[Any], prompt: Message) -> tuple[Message, Message]:
    """Return a prompt and its reply as text: a provider refuses a tool use without its result."""
    called = ", ".join(call.name for call in result.tool_calls)
    return prompt, assistant(result.text or f"(called {called})" if called else result.text or " ")

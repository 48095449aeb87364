"""Questions to the user: one ``ctx.elicit(...)`` as requests, repeated until the answer fits."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from functools import lru_cache, partial
from typing import Any, NamedTuple, cast

from pydantic import BaseModel, JsonValue, TypeAdapter, ValidationError

from anabranch._asking.elicitation import (
    Accepted,
    Cancelled,
    Declined,
    Elicitation,
    ElicitResult,
    checked_model,
    describe,
    form_schema,
)
from anabranch._asking.host import Host
from anabranch._engine import (
    REFUSED,
    AskKind,
    Call,
    Codec,
    Scope,
    drawn_codec,
    fingerprint,
    repeatable,
)
from anabranch._schemas import as_meant
from anabranch._text import encodable
from anabranch.errors import ConcurrentElicitError, ElicitInBranchError, ElicitValidationError
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

REASON = "\n\n(The last answer did not fit: "
END = ".)"


def asked_again(message: str, reason: str) -> str:
    return f"{message}{REASON}{reason}{END}"


def fields_asked_again(message: str, names: Container[str]) -> tuple[str, set[str]]:
    """Split a repeated question into its message and the fields that its reason names, if any."""
    asked, _, reason = message.removesuffix(END).partition(REASON)
    parts = (problem.partition(":")[0].partition(".")[0] for problem in reason.split("; "))
    return asked if reason else message, {name for name in parts if name in names}


RETRIES = 3
CHANGED = "the question was changed after it had been shown"


class ElicitJob(NamedTuple):
    """The parameters of one ``ctx.elicit``. ``name`` is the declared elicitation's key."""

    call: Call[Any]
    host: Host
    scope: Scope
    step_id: str
    model: type[BaseModel]
    message: str
    name: str | None = None
    context: JsonValue = None

    def fingerprint_of(self, message: str) -> str:
        return fingerprint(message, _form_fingerprint(self.model), self.context)

    def request(self, message: str, step_id: str) -> ElicitRequest:
        self.host.require("elicitation")
        _check_allowed(self.call, self.host, self.scope, step_id)
        return ElicitRequest(
            message=message,
            requested_schema=form_schema(self.model),
            context=self.context,
            key=self.name,
        )

    def result(self, step_id: str, value: JsonValue) -> ElicitResult[Any]:
        action, given = _read(value)
        if action != "accept":
            return Declined() if action == "decline" else Cancelled()
        content = _filled_in(self.model, given)
        if (codec := _drawn_codec(self.model)) is not None:
            again = partial(_filled_in, self.model, given)
            content = self.call.operations.first(self.scope.branch, step_id, codec, content, again)
        return Accepted(content, partial(_exchange, self, content))


class UrlJob(NamedTuple):
    """The parameters of one ``ctx.elicit_url``."""

    call: Call[Any]
    host: Host
    scope: Scope
    step_id: str
    message: str
    url: str

    def fingerprint_of(self, message: str) -> str:
        return fingerprint(message, self.url)

    def request(self, message: str, step_id: str) -> UrlRequest:
        _check_allowed(self.call, self.host, self.scope, step_id)
        elicitation_id = f"{self.call.journal.call_id}:{self.step_id}"
        return UrlRequest(message=message, url=self.url, elicitation_id=elicitation_id)

    def result(self, _: str, value: JsonValue) -> Accepted[None] | Declined | Cancelled:
        action = _read(value)[0]
        if action == "accept":
            return Accepted(None)
        return Declined() if action == "decline" else Cancelled()


def find_question(
    question: Elicitation[Any] | type[BaseModel] | str, declared: Mapping[str, Elicitation[Any]]
) -> tuple[str | None, type[BaseModel]]:
    if isinstance(question, str):
        if question not in declared:
            known = ", ".join(sorted(declared)) or "none"
            raise ValueError(
                f"The tool declares no elicitation {question!r} (declared: {known})."
                " The question comes first: ctx.elicit(Model, message)."
            )
        question = declared[question]
    if isinstance(question, Elicitation):
        return question.key, question.model
    return None, checked_model(question)


def _check_allowed(call: Call[Any], host: Host, scope: Scope, step_id: str) -> None:
    if step_id in call.journal.pending:  # the host allowed the question in an earlier round
        return
    capabilities, branch = host.capabilities, scope.branch
    if not capabilities.elicits_in_branches and branch.depth > 0:
        raise ElicitInBranchError(step_id, branch.depth)
    if not capabilities.concurrent_elicits:
        for other in call.operations.open_ids("elicit", "url"):
            raise ConcurrentElicitError(step_id, other)


async def run_elicit(job: ElicitJob | UrlJob, kind: AskKind = "elicit") -> ElicitResult[Any]:
    """Ask, and ask again with the reason while the answer does not fit, at most three times."""
    message, call, scope, step_id = job.message, job.call, job.scope, job.step_id
    attempt = misfits = 0
    while True:
        attempt += 1
        asked = job.fingerprint_of(message)
        entry = call.operations.recorded(scope, step_id, kind, asked)
        if entry is None:
            request = partial(job.request, message, step_id)
            entry = await call.operations.ask(scope, step_id, kind, asked, request)
        if entry.kind == REFUSED:
            message = asked_again(job.message, CHANGED)
        else:
            try:
                return job.result(step_id, entry.value)
            except ValidationError as problem:
                reason, misfits = describe(problem), misfits + 1
            if misfits > RETRIES:
                raise ElicitValidationError(job.step_id, misfits, reason)
            if kind == "elicit":  # a page has no fields that the user could correct
                message = asked_again(job.message, reason)
        step_id = call.cursor.new_attempt(job.step_id, attempt + 1)


async def run_elicit_url(job: UrlJob) -> Accepted[None] | Declined | Cancelled:
    job.host.require("elicitation.url")
    return await run_elicit(job, "url")


def _read(value: JsonValue) -> tuple[str, object]:
    if isinstance(value, dict) and value.get("action") == "accept":  # nearly always
        content = value.get("content")
        if isinstance(content, dict):
            return "accept", content
    reply = ElicitReply.model_validate(value)
    return reply.action, reply.content or {}


def _filled_in(model: type[BaseModel], given: object) -> BaseModel:
    """Return the form's content; if it does not fit, convert values whose meaning is clear."""
    read = _reader(model)
    try:
        return read(given)
    except ValidationError as problem:
        if not isinstance(given, dict):
            raise
        content = cast("dict[str, Any]", given)
        meant, _ = as_meant(content, problem.errors(include_url=False))
        try:
            return read(meant)
        except ValidationError as second:
            nulls = _unanswered(model, second)
            if not nulls:
                raise problem from None
        filled: dict[Any, Any] = {**meant, **nulls}
        try:
            return read(filled)
        except ValidationError:
            raise problem from None


def _unanswered(model: type[BaseModel], problem: ValidationError) -> dict[int | str, None]:
    """Return a null for each missing field that the form does not require: the field takes null."""
    required = form_schema(model).get("required", ())
    errors = problem.errors(include_url=False, include_input=False)
    missing = [each["loc"] for each in errors if each["type"] == "missing"]
    return {name: None for name, *inner in missing if name not in required and not inner}


@lru_cache(maxsize=512)
def _reader(model: type[BaseModel]) -> Callable[[object], BaseModel]:
    return repeatable(model.__pydantic_core_schema__, model.__pydantic_validator__).validate_python


@lru_cache(maxsize=512)
def _drawn_codec(model: type[BaseModel]) -> Codec | None:
    return drawn_codec(TypeAdapter(model))


@lru_cache(maxsize=512)
def _form_fingerprint(model: type[BaseModel]) -> str:
    return fingerprint(form_schema(model))


def _exchange(job: ElicitJob, content: BaseModel) -> Exchange:
    use = ToolUseBlock(id=job.step_id, name=job.name or "elicit", input={})
    answer = TextBlock(text=encodable(content).model_dump_json(by_alias=True))
    result = ToolResultBlock(tool_use_id=job.step_id, content=(answer,))
    return Exchange((assistant([TextBlock(text=job.message), use]), user([result])))

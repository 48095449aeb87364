"""``tools/callSaga`` and ``tools/resumeSaga``: calls whose client holds the state, in any era.

Owns the two methods, their shapes and the checks of what comes in; they are proposed in
https://gist.github.com/ggoodman/f814a181155c5a81706905ec08432870. A round is run by
``edges/service.py``; the token is sealed by ``sealing.py``.

What the proposal leaves open is settled so: a token expires, and is bound to the server, the
caller, the tool and its arguments. ``completedSteps`` holds every result so far; what was given
before must be repeated unchanged, and every open step must be in it, once. A step's error is
raised in the tool, on the line that has asked. A token may be presented again: without a store
that runs the round again, with one it gets the same reply.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import mcp_types as types
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.server.mcpserver import Extension, MethodBinding
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from anabranch.call import Answer, Ask, Journal, canonical
from anabranch.edges.durable import Rendering, Returned, digest
from anabranch.edges.mcp.render import required_capabilities, to_params, to_saga_answer
from anabranch.edges.mcp.request import McpRequest
from anabranch.edges.mcp.results import to_failure, to_result
from anabranch.edges.mcp.sealing import SagaClaims, Sealer
from anabranch.edges.mcp.serving import Service
from anabranch.edges.service import Job
from anabranch.errors import (
    AnabranchError,
    CapabilityError,
    InvalidTokenError,
    StepFailed,
    error_to_json,
)
from anabranch.host import Capabilities, Host
from anabranch.tool import Tool

__all__ = ["CALL_SAGA", "IDENTIFIER", "RESUME_SAGA", "LooseParams", "SagaMethods", "Sagas"]

CALL_SAGA = "tools/callSaga"
RESUME_SAGA = "tools/resumeSaga"
IDENTIFIER = "io.github.anabranch/sagas"

S = TypeVar("S", bound=BaseModel)
logger: logging.Logger = logging.getLogger("anabranch.edges.mcp")


class LooseParams(types.RequestParams):
    """Takes anything: the SDK would refuse a bad parameter without saying which."""

    model_config = ConfigDict(extra="allow")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)


class _CallSaga(_Strict):
    name: str
    arguments: dict[str, JsonValue] = Field(default_factory=dict)


class _StepError(_Strict):
    code: int = -32000
    message: str
    data: JsonValue = None


class _CompletedStep(_Strict):
    stepId: str  # noqa: N815 - the name on the wire, which errors repeat
    result: dict[str, JsonValue] | None = None
    error: _StepError | None = None


class _ResumeSaga(_Strict):
    sagaToken: str  # noqa: N815 - as above
    completedSteps: list[_CompletedStep]  # noqa: N815 - as above


@dataclass(frozen=True, slots=True)
class _Offered:
    tool: Tool[Any]
    service: Service


class SagaMethods:
    """The two methods over a set of tools, for whichever server binds them."""

    def __init__(self, sealer: Sealer) -> None:
        self._sealer = sealer
        self._offered: dict[str, _Offered] = {}

    def offer(self, tool: Tool[Any], service: Service) -> None:
        """Let ``tool`` be called."""
        self._offered[tool.name] = _Offered(tool, service)

    async def call(self, context: ServerRequestContext[Any, Any], _: LooseParams) -> dict[str, Any]:
        """Answer ``tools/callSaga``.

        Raises:
            MCPError: a parameter is wrong; the message begins with its name.
        """
        params = _validated(_CallSaga, context.params)
        offered = self._find(params.name)
        claims = SagaClaims(tool=params.name, arguments=params.arguments, state="")
        journal = offered.service.calls.new()
        return await self._round(offered, McpRequest(context), claims, journal, {})

    async def resume(
        self, context: ServerRequestContext[Any, Any], _: LooseParams
    ) -> dict[str, Any]:
        """Answer ``tools/resumeSaga``.

        Raises:
            MCPError: a parameter is wrong; the message begins with its name. Whatever is wrong
                with the token, the error is the same.
        """
        params = _validated(_ResumeSaga, context.params)
        request = McpRequest(context)
        try:
            claims = self._sealer.open(params.sagaToken, request.principal)
            offered = self._offered.get(claims.tool)
            if offered is None:
                logger.warning("a saga token was refused: there is no tool %r", claims.tool)
                raise InvalidTokenError  # noqa: TRY301 - as from all that is tried here
            journal = await offered.service.calls.load(claims.state)
            answers = _take(params.completedSteps, journal, claims)
            return await self._round(offered, request, claims, journal, answers)
        except InvalidTokenError as error:
            data = {"reason": "invalid_saga_token"}
            raise MCPError(types.INVALID_PARAMS, "Invalid or expired sagaToken", data) from error

    def _find(self, name: str) -> _Offered:
        if name not in self._offered:
            raise _invalid("name", f"there is no tool {name!r}; tools/list has those there are")
        return self._offered[name]

    async def _round(
        self,
        offered: _Offered,
        request: McpRequest,
        claims: SagaClaims,
        journal: Journal,
        answers: Mapping[str, Answer],
    ) -> dict[str, Any]:
        tool, service = offered.tool, offered.service
        try:
            job = Job(
                tool,
                tool.validate(claims.arguments),
                Host(_capabilities(request), service.sampler),
                request.sink(journal),
                request.principal,
            )
            rendering = self._rendering(claims, request.principal)
            outcome = await service.calls.run_round(job, journal, answers, rendering)
        except InvalidTokenError:
            raise
        except CapabilityError as error:
            if not request.is_modern:
                return to_failure(str(error))
            data = required_capabilities(error.capability)
            raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, str(error), data) from error
        except AnabranchError as error:
            return to_failure(str(error))
        except Exception:
            logger.exception("tool %r raised an unexpected exception", tool.name)
            return to_failure(f"Error executing tool {tool.name}")
        return to_result(outcome.value) if isinstance(outcome, Returned) else outcome.reply

    def _rendering(self, claims: SagaClaims, principal: str) -> Rendering[dict[str, Any]]:
        def render(asks: tuple[Ask, ...], state: str) -> dict[str, Any]:
            token = self._sealer.seal(claims.model_copy(update={"state": state}), principal)
            return {"state": "suspended", "sagaToken": token, "steps": [_step(a) for a in asks]}

        return Rendering(render, lambda reply: reply, lambda reply, _: reply)


class Sagas(Extension):
    """The two methods as an extension of an ``MCPServer``."""

    identifier = IDENTIFIER

    def __init__(self, methods: SagaMethods) -> None:
        self.saga_methods = methods

    def settings(self) -> dict[str, Any]:
        """Return what the server advertises about them."""
        return {"version": "1"}

    def methods(self) -> list[MethodBinding]:
        """Return the methods, served in every era."""
        return [
            MethodBinding(CALL_SAGA, LooseParams, self.saga_methods.call),
            MethodBinding(RESUME_SAGA, LooseParams, self.saga_methods.resume),
        ]


def _step(ask: Ask) -> dict[str, Any]:
    kind = "sampling" if ask.kind == "sample" else "elicitation"
    return {"type": kind, "stepId": ask.step_id, "params": to_params(ask)}


def _take(steps: list[_CompletedStep], journal: Journal, claims: SagaClaims) -> dict[str, Answer]:
    """Return the answers to the open steps, and note in ``claims`` what they were.

    Raises:
        MCPError: a step is unknown, missing, given twice, or does not answer its question.
        InvalidTokenError: an earlier answer has been changed.
    """
    answers: dict[str, Answer] = {}
    given: set[str] = set()
    for index, step in enumerate(steps):
        where = f"completedSteps[{index}]"
        if step.stepId in given:
            raise _invalid(f"{where}.stepId", f"step {step.stepId!r} is given twice")
        given.add(step.stepId)
        if (step.result is None) == (step.error is None):
            raise _invalid(where, "give either result or error")
        pinned = _pinned(step)
        if step.stepId in journal.pending:
            answers[step.stepId] = _answer(step, journal.pending[step.stepId][0], where)
            claims.answered[step.stepId] = pinned
        elif step.stepId not in claims.answered:
            raise _invalid(f"{where}.stepId", f"step {step.stepId!r} was not asked")
        elif claims.answered[step.stepId] != pinned:
            logger.warning("a saga token was refused: the answer to %r has changed", step.stepId)
            raise InvalidTokenError
    if missing := sorted({*journal.pending, *claims.answered} - given):
        raise _invalid("completedSteps", f"the steps {missing} are missing")
    return answers


def _answer(step: _CompletedStep, kind: str, where: str) -> Answer:
    if step.error is not None:
        failure = StepFailed(step.stepId, str(step.error.code), step.error.message)
        return Answer(error=error_to_json(failure))
    answer = to_saga_answer(kind, step.result or {})
    if answer is None:
        wanted = "a CreateMessageResult" if kind == "sample" else "an ElicitResult"
        raise _invalid(f"{where}.result", f"it is not {wanted}")
    return answer


def _pinned(step: _CompletedStep) -> str:
    return digest(canonical([step.result, step.error.model_dump() if step.error else None]))


def _validated(shape: type[S], params: Mapping[str, Any] | None) -> S:
    try:
        return shape.model_validate(params or {})
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        raise _invalid(_field(problem["loc"]), problem["msg"]) from error


def _field(location: tuple[int | str, ...]) -> str:
    """Return where a problem is: ``completedSteps[0].stepId``."""
    named = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return named.removeprefix(".") or "params"


def _invalid(field: str, problem: str) -> MCPError:
    return MCPError(types.INVALID_PARAMS, f"{field}: {problem}", {"field": field})


def _capabilities(request: McpRequest) -> Capabilities:
    """What the client declared; one that declares nothing answers steps all the same."""
    declared = request.session.client_capabilities
    if declared is None or (declared.sampling is None and declared.elicitation is None):
        return Capabilities()
    return request.capabilities

"""``tools/callSaga`` and ``tools/resumeSaga``: calls whose client holds the state, in any era.

The proposal of the methods is https://gist.github.com/ggoodman/f814a181155c5a81706905ec08432870.
Here a token expires, and is bound to the server, the caller, the tool and its arguments. Earlier
results must be repeated unchanged. A step's error is raised in the tool. A token may be presented
again: without a store, the round runs again; with one, the client gets the same reply.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias, TypeVar

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.extension import RequestHandler
from mcp.server.lowlevel import Server
from pydantic import BaseModel

from anabranch._asking import Capabilities, answer_of_error
from anabranch._durable import SagaClaims, Sealer, digest
from anabranch._engine import Answer, Ask, Finished, Journal, canonical
from anabranch._text import encodable
from anabranch.errors import InvalidTokenError
from anabranch.mcp._error_mapping import SAGA_TOKEN, CallFailedError, invalid_token, mapped_errors
from anabranch.mcp._protocol import capabilities_of, to_params, to_saga_answer
from anabranch.mcp._request import McpRequest
from anabranch.mcp._saga_shapes import (
    CALL_SAGA,
    RESUME_SAGA,
    CallToolSagaParams,
    Convert,
    LooseParams,
    ResumeToolSagaParams,
    SagaStepResult,
    invalid,
    quoted,
    read,
    to_result,
    to_wire,
)
from anabranch.mcp._service import OpenCall, Service
from anabranch.tool import Tool

B = TypeVar("B")

logger: logging.Logger = logging.getLogger("anabranch.mcp")


def answers_in(
    steps: Sequence[SagaStepResult], journal: Journal, claims: SagaClaims
) -> dict[str, Answer]:
    answers: dict[str, Answer] = {}
    open_steps = journal.questions
    given: set[str] = set()
    for index, step in enumerate(steps):
        where = f"completedSteps[{index}]"
        if step.step_id in given:
            raise invalid(f"{where}.stepId", f"step {quoted(step.step_id)} is given twice")
        given.add(step.step_id)
        if (step.result is None) == (step.error is None):
            raise invalid(where, "give either result or error")
        pinned = _pinned(step)
        if step.step_id in open_steps:
            answers[step.step_id] = _answer(step, open_steps[step.step_id][0], where)
            claims.answered[step.step_id] = pinned
        elif step.step_id not in claims.answered:
            raise invalid(f"{where}.stepId", f"step {quoted(step.step_id)} was not asked")
        elif claims.answered[step.step_id] != pinned:
            logger.warning("a saga token was refused: the answer to %r has changed", step.step_id)
            raise InvalidTokenError
    if missing := sorted({*open_steps, *claims.answered} - given):
        raise invalid("completedSteps", f"the steps {missing} are missing")
    return answers


def _answer(step: SagaStepResult, kind: str, where: str) -> Answer:
    if step.error is not None:
        said = step.error
        return answer_of_error(kind, step.step_id, said.code, said.message, said.data)
    answer = to_saga_answer(kind, step.result or {})
    if answer is None:
        wanted = "a CreateMessageResult" if kind == "sample" else "an ElicitResult"
        raise invalid(f"{where}.result", f"it is not {wanted}")
    return answer


def _pinned(step: SagaStepResult) -> str:
    return digest(canonical([step.result, step.error.model_dump() if step.error else None]))


SETTINGS: Final = {"version": "1"}


@dataclass(frozen=True, slots=True)
class Offered:
    tool: Tool[Any]
    service: Service
    convert: Convert


Find: TypeAlias = Callable[[str], Awaitable[Offered | RequestHandler | None]]
"""Returns the tool that the caller sees under a name; ``None`` without one.

For a tool of the host itself, the result is the host's handler of ``tools/call``.
"""


def tools_call_of(server: Server[Any]) -> RequestHandler | None:
    """Return the handler of ``tools/call``, which includes the interceptors of extensions."""
    entry = server.get_request_handler("tools/call")
    return None if entry is None else entry.handler


class SagaMethods:
    def __init__(self, sealer: Sealer, find: Find) -> None:
        self._sealer = sealer
        self._find = find

    def bindings(
        self,
        bind: Callable[..., B],
        request_of: Callable[[ServerRequestContext[Any, Any]], McpRequest],
    ) -> list[B]:
        """Return the saga methods for every era, in the form that a host's ``bind`` makes."""

        async def call(context: ServerRequestContext[Any, Any], _: LooseParams) -> dict[str, Any]:
            return await self.call(request_of(context))

        async def resume(context: ServerRequestContext[Any, Any], _: LooseParams) -> dict[str, Any]:
            return await self.resume(request_of(context))

        return [bind(CALL_SAGA, LooseParams, call), bind(RESUME_SAGA, LooseParams, resume)]

    async def call(self, request: McpRequest) -> dict[str, Any]:
        params = read(CallToolSagaParams, request.context.params)
        offered = await self._find(params.name)
        if offered is None:
            known = f"there is no tool {quoted(params.name)}; tools/list has the tools"
            raise invalid("name", known)
        if not isinstance(offered, Offered):
            return await _one_round(offered, request, params.name)
        claims = SagaClaims(tool=params.name, arguments=params.arguments, state="")
        return await self._reply(offered, request, claims)

    async def resume(self, request: McpRequest) -> dict[str, Any]:
        # Each problem of the token gives the same error, from which a client cannot tell them apart.
        params = read(ResumeToolSagaParams, request.context.params)
        try:
            claims = self._sealer.open(params.saga_token, request.principal)
        except InvalidTokenError as error:
            raise invalid_token(SAGA_TOKEN) from error
        offered = await self._find(claims.tool)
        if not isinstance(offered, Offered):
            logger.warning("a saga token was refused: there is no tool %r", claims.tool)
            raise invalid_token(SAGA_TOKEN)
        return await self._reply(offered, request, claims, params.completed_steps)

    async def _reply(
        self,
        offered: Offered,
        request: McpRequest,
        claims: SagaClaims,
        steps: list[SagaStepResult] | None = None,
    ) -> dict[str, Any]:
        tool = offered.tool
        try:
            with mapped_errors(is_modern=request.is_modern, token=SAGA_TOKEN):
                return await self._round(offered, request, claims, steps)
        except CallFailedError as failure:
            failure.log(tool.name)
            text = failure.text or failure.masked(f"Error executing tool {tool.name}")
            return {"content": [{"type": "text", "text": text}], "isError": True}

    async def _round(
        self,
        offered: Offered,
        request: McpRequest,
        claims: SagaClaims,
        steps: list[SagaStepResult] | None,
    ) -> dict[str, Any]:
        """Run the next round; without ``steps``, it is the first."""
        tool, service = offered.tool, offered.service
        if steps is None:
            arguments = tool.validate(claims.arguments)
            journal, answers = service.new(tool, arguments, request), dict[str, Answer]()
        else:
            journal = await service.calls.stored.load(claims.state)
            answers = answers_in(steps, journal, claims)
            arguments = tool.validate(claims.arguments)
        job = service.job(OpenCall(tool, arguments, journal), request, _capabilities(request))
        job = replace(job, seals_arguments=True)
        replies = _SagaReplies(self._sealer, claims, request.principal)
        outcome = await service.calls.run_round(job, journal, answers, replies)
        if isinstance(outcome, Finished):
            return to_result(outcome.value, offered.convert)
        await service.calls.hold(tool, journal)
        return outcome


@dataclass(frozen=True, slots=True)
class _SagaReplies:
    sealer: Sealer
    claims: SagaClaims
    principal: str
    kind: str = "saga"

    def make(self, asks: tuple[Ask, ...], state: str) -> dict[str, Any]:
        claims = self.claims.model_copy(update={"state": state})
        token = self.sealer.seal(claims, self.principal)
        return {"state": "suspended", "sagaToken": token, "steps": [_step(a) for a in asks]}

    def dump(self, reply: dict[str, Any]) -> dict[str, Any]:
        return reply

    def load(self, stored: dict[str, Any], _state: str) -> dict[str, Any]:
        return stored


async def _one_round(handler: RequestHandler, request: McpRequest, name: str) -> dict[str, Any]:
    """Call a tool of the host itself, as a saga that ends immediately."""
    # Without the fields that continue a call: no boundary has unsealed a state here.
    sent = request.context.params or {}
    given = {field: sent[field] for field in ("name", "arguments", "_meta") if field in sent}
    context = replace(request.context, method="tools/call", params=given)
    result = encodable(await handler(context, types.CallToolRequestParams.model_validate(given)))
    if isinstance(result, types.InputRequiredResult):
        asks = f"the host's tool {quoted(name)} asks in a way that only tools/call of 2026-07-28"
        raise invalid("name", f"{asks} carries; use that method")
    return to_wire(result) if isinstance(result, BaseModel) else dict(result or {})


def _step(ask: Ask) -> dict[str, Any]:
    kind = "sampling" if ask.kind == "sample" else "elicitation"
    return {"type": kind, "stepId": ask.step_id, "params": to_params(ask)}


def _capabilities(request: McpRequest) -> Capabilities:
    """Return the client's declared capabilities; by default, all that a saga can ask."""
    declared = request.session.client_capabilities
    if declared is None or (declared.sampling is None and declared.elicitation is None):
        return Capabilities(sampling_documents=False)
    return capabilities_of(declared)  # a step is not a request, so every connection carries it

"""``tools/callSaga`` and ``tools/resumeSaga``: calls whose client holds the state, in any era.

Owns the two methods and the checks of answers; they are proposed in
https://gist.github.com/ggoodman/f814a181155c5a81706905ec08432870. Parameters are read by
``saga_params.py``, a round is run by ``edges/service.py``, the token is sealed by ``sealing.py``.

What the proposal leaves open is settled so: a token expires, and is bound to the server, the
caller, the tool and its arguments. ``completedSteps`` holds every result so far; what was given
before must be repeated unchanged, and every open step must be in it, once. A step's error is
raised in the tool, on the line that has asked. A token may be presented again: without a store
that runs the round again, with one it gets the same reply.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import mcp_types as types
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.server.mcpserver import Extension, MethodBinding

from anabranch._asking.host import Capabilities, Host
from anabranch._durable.job import Job
from anabranch._durable.states import digest
from anabranch._engine import Answer, Ask, Finished, Journal, canonical
from anabranch.errors import (
    AnabranchError,
    CapabilityError,
    InvalidTokenError,
    StepFailed,
    StoreError,
    error_to_json,
)
from anabranch.mcp._protocol import (
    required_capabilities,
    to_params,
    to_saga_answer,
)
from anabranch.mcp._request import McpRequest
from anabranch.mcp._saga_params import (
    CALL_SAGA,
    IDENTIFIER,
    RESUME_SAGA,
    CallSaga,
    CompletedStep,
    LooseParams,
    ResumeSaga,
    invalid,
    quoted,
    read,
)
from anabranch.mcp._saga_results import Results, to_failure
from anabranch.mcp._sealing import SagaClaims, Sealer
from anabranch.mcp._serving import Service
from anabranch.tool import Tool

__all__ = [
    "SETTINGS",
    "Offered",
    "SagaMethods",
    "Sagas",
]

SETTINGS: Final = {"version": "1"}

logger: logging.Logger = logging.getLogger("anabranch.mcp")


@dataclass(frozen=True, slots=True)
class Offered:
    """A tool that can be called as a saga, what runs it, and what makes its results."""

    tool: Tool[Any]
    service: Service
    results: Results


Find: TypeAlias = Callable[[str], Awaitable[Offered | None]]
"""What a name stands for, now and for who is asking; ``None`` if for nothing."""


class SagaMethods:
    """The two methods over a set of tools, for whichever server binds them.

    Args:
        sealer: seals their tokens.
        find: finds a tool where the host itself keeps them; without it, those that are offered
            can be called.
    """

    def __init__(self, sealer: Sealer, find: Find | None = None) -> None:
        self._sealer = sealer
        self._offered: dict[str, Offered] = {}
        self._find = find or self._find_offered

    def offer(self, tool: Tool[Any], service: Service) -> None:
        """Let ``tool`` be called."""
        self._offered[tool.name] = Offered(tool, service, Results(tool))

    async def call(self, request: McpRequest) -> dict[str, Any]:
        """Answer ``tools/callSaga``.

        Raises:
            MCPError: a parameter is wrong; the message begins with its name.
        """
        params = read(CallSaga, request.context.params)
        offered = await self._find(params.name)
        if offered is None:
            known = f"there is no tool {quoted(params.name)}; tools/list has those there are"
            raise invalid("name", known)
        claims = SagaClaims(tool=params.name, arguments=params.arguments, state="")
        journal = offered.service.calls.new()
        return await _told(offered.tool, request, self._round(offered, request, claims, journal))

    async def resume(self, request: McpRequest) -> dict[str, Any]:
        """Answer ``tools/resumeSaga``.

        Raises:
            MCPError: a parameter is wrong; the message begins with its name. Whatever is wrong
                with the token, the error is the same.
        """
        params = read(ResumeSaga, request.context.params)
        try:
            claims = self._sealer.open(params.sagaToken, request.principal)
        except InvalidTokenError as error:
            raise _refused() from error
        offered = await self._find(claims.tool)
        if offered is None:
            logger.warning("a saga token was refused: there is no tool %r", claims.tool)
            raise _refused()
        resumed = self._resumed(offered, request, claims, params.completedSteps)
        return await _told(offered.tool, request, resumed)

    async def _find_offered(self, name: str) -> Offered | None:
        return self._offered.get(name)

    async def _resumed(
        self,
        offered: Offered,
        request: McpRequest,
        claims: SagaClaims,
        steps: list[CompletedStep],
    ) -> dict[str, Any]:
        journal = await offered.service.calls.load(claims.state)
        answers = _take(steps, journal, claims)
        return await self._round(offered, request, claims, journal, answers)

    async def _round(
        self,
        offered: Offered,
        request: McpRequest,
        claims: SagaClaims,
        journal: Journal,
        answers: Mapping[str, Answer] | None = None,
    ) -> dict[str, Any]:
        tool, service = offered.tool, offered.service
        job = Job(
            tool,
            tool.validate(claims.arguments),
            Host(_capabilities(request), service.sampler),
            request.sink(journal),
            request.principal,
        )
        replies = _SagaReplies(self._sealer, claims, request.principal)
        outcome = await service.calls.run_round(job, journal, answers or {}, replies)
        if isinstance(outcome, Finished):
            return offered.results.to_result(outcome.value)
        return outcome


@dataclass(frozen=True, slots=True)
class _SagaReplies:
    """How the open steps of a saga become its result, which is stored with its token."""

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


class Sagas(Extension):
    """The two methods as an extension of an ``MCPServer``."""

    identifier = IDENTIFIER

    def __init__(self, methods: SagaMethods) -> None:
        self.saga_methods = methods

    def settings(self) -> dict[str, Any]:
        """Return what the server advertises about them."""
        return dict(SETTINGS)

    def methods(self) -> list[MethodBinding]:
        """Return the methods, served in every era."""
        return [
            MethodBinding(CALL_SAGA, LooseParams, self._call),
            MethodBinding(RESUME_SAGA, LooseParams, self._resume),
        ]

    async def _call(
        self, context: ServerRequestContext[Any, Any], _: LooseParams
    ) -> dict[str, Any]:
        return await self.saga_methods.call(McpRequest(context))

    async def _resume(
        self, context: ServerRequestContext[Any, Any], _: LooseParams
    ) -> dict[str, Any]:
        return await self.saga_methods.resume(McpRequest(context))


async def _told(
    tool: Tool[Any], request: McpRequest, running: Awaitable[dict[str, Any]]
) -> dict[str, Any]:
    """Return what ``running`` does; its errors are told as ``tools/call`` tells them.

    Raises:
        MCPError: the request is wrong, not the tool; or the tool's own.
    """
    try:
        return await running
    except MCPError:
        raise
    except InvalidTokenError as error:
        raise _refused() from error
    except CapabilityError as error:
        if not request.is_modern:
            return to_failure(str(error))
        data = required_capabilities(error.capability)
        raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, str(error), data) from error
    except StoreError:  # about the server's database, which is not the caller's business
        logger.exception("tool %r raised an unexpected exception", tool.name)
    except AnabranchError as error:
        return to_failure(str(error))
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        # The tool's own: passed on, it would end the connection, and all other calls on it.
        logger.exception("tool %r was cancelled from within", tool.name)
    except Exception:
        # A tool is its author's code, and what it raises may hold what is nobody's business.
        logger.exception("tool %r raised an unexpected exception", tool.name)
    return to_failure(f"Error executing tool {tool.name}")


def _step(ask: Ask) -> dict[str, Any]:
    kind = "sampling" if ask.kind == "sample" else "elicitation"
    return {"type": kind, "stepId": ask.step_id, "params": to_params(ask)}


def _take(steps: list[CompletedStep], journal: Journal, claims: SagaClaims) -> dict[str, Answer]:
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
            raise invalid(f"{where}.stepId", f"step {quoted(step.stepId)} is given twice")
        given.add(step.stepId)
        if (step.result is None) == (step.error is None):
            raise invalid(where, "give either result or error")
        pinned = _pinned(step)
        if step.stepId in journal.pending:
            answers[step.stepId] = _answer(step, journal.pending[step.stepId][0], where)
            claims.answered[step.stepId] = pinned
        elif step.stepId not in claims.answered:
            raise invalid(f"{where}.stepId", f"step {quoted(step.stepId)} was not asked")
        elif claims.answered[step.stepId] != pinned:
            logger.warning("a saga token was refused: the answer to %r has changed", step.stepId)
            raise InvalidTokenError
    if missing := sorted({*journal.pending, *claims.answered} - given):
        raise invalid("completedSteps", f"the steps {missing} are missing")
    return answers


def _answer(step: CompletedStep, kind: str, where: str) -> Answer:
    if step.error is not None:
        failure = StepFailed(step.stepId, str(step.error.code), step.error.message)
        return Answer(error=error_to_json(failure))
    answer = to_saga_answer(kind, step.result or {})
    if answer is None:
        wanted = "a CreateMessageResult" if kind == "sample" else "an ElicitResult"
        raise invalid(f"{where}.result", f"it is not {wanted}")
    return answer


def _pinned(step: CompletedStep) -> str:
    return digest(canonical([step.result, step.error.model_dump() if step.error else None]))


def _refused() -> MCPError:
    data = {"reason": "invalid_saga_token"}
    return MCPError(types.INVALID_PARAMS, "Invalid or expired sagaToken", data)


def _capabilities(request: McpRequest) -> Capabilities:
    """What the client declared; one that declares nothing answers steps all the same."""
    declared = request.session.client_capabilities
    if declared is None or (declared.sampling is None and declared.elicitation is None):
        return Capabilities()
    return request.capabilities

"""The calling side of sagas: ``tools/callSaga``, then ``tools/resumeSaga`` until there is a result.

All steps of a turn are answered at once, and every turn sends all steps completed so far. A turn
is never sent twice automatically: the caller, who receives each :class:`Turn` before it is sent,
decides that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import anyio
import mcp_types as types
from mcp import Client, MCPError
from pydantic import BaseModel, ConfigDict, JsonValue

from anabranch._asking.answerer import Answerer
from anabranch._encodable import encodable
from anabranch.errors import AnabranchError
from anabranch.mcp._client import MAX_ROUNDS
from anabranch.mcp._client_answers import answer_elicit, answer_sample
from anabranch.mcp._saga_params import CALL_SAGA, RESUME_SAGA
from anabranch.mcp._saga_shapes import SagaStep, SamplingStep, ToolCallSagaResult

__all__ = ["SagaClient", "SagaRoundsExceededError", "Turn"]

INVALID_IN_V1 = "Invalid request parameters"
"""What servers of the SDK's first major version answer to an unknown method."""


class SagaRoundsExceededError(AnabranchError):
    """The server still asks after ``max_rounds`` turns with questions."""

    def __init__(self, max_rounds: int) -> None:
        self.max_rounds = max_rounds
        super().__init__(
            f"The saga asked in more than {max_rounds} turns. Give SagaClient more max_rounds,"
            " or resume its last turn.",
            max_rounds=max_rounds,
        )


@dataclass(frozen=True, slots=True)
class Turn:
    """All that is needed to continue a saga, from any process. Its parts are plain JSON.

    Attributes:
        token: the server's latest token.
        steps: every completed step so far, as ``tools/resumeSaga`` takes them.
    """

    token: str
    steps: Sequence[Mapping[str, JsonValue]]


class SagaClient:
    """Calls tools as sagas.

    Args:
        client: is connected.
        answerer: answers the steps, several at a time; a step that it refuses by ``AnswerError``
            is completed with that error. It receives progress, too; log messages go to the
            callback that ``client`` was made with.
        max_rounds: turns with questions after which a call is given up.
        on_turn: called with every turn before it is sent. A saga whose connection is lost can be
            resumed by the same turn, which servers with a store do not run twice.
    """

    def __init__(
        self,
        client: Client,
        answerer: Answerer,
        *,
        max_rounds: int = MAX_ROUNDS,
        on_turn: Callable[[Turn], object] | None = None,
    ) -> None:
        self._client = client
        self._answerer = answerer
        self._max_rounds = max_rounds
        self._on_turn = on_turn

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any] | None = None
    ) -> types.CallToolResult:
        """Call a tool and return its result, which may be an error's.

        Raises:
            MCPError: the server refused, or the connection broke; with ``METHOD_NOT_FOUND``, the
                server offers no sagas.
            SagaRoundsExceededError: it asked in too many turns.
            pydantic.ValidationError: the server's reply is neither a result nor a suspended saga.
            Exception: what the answerer raises, in an ``ExceptionGroup``.
        """
        params = {"name": name, "arguments": dict(arguments or {})}
        return await self._drive(await self._send(CALL_SAGA, params), {})

    async def resume(self, turn: Turn) -> types.CallToolResult:
        """Continue from ``turn`` and return the tool's result.

        Raises:
            Exception: as :meth:`call_tool`.
        """
        completed = {str(step["stepId"]): dict(step) for step in turn.steps}
        return await self._drive(await self._resumed(turn), completed)

    async def _drive(
        self, reply: types.CallToolResult | ToolCallSagaResult, completed: dict[str, dict[str, Any]]
    ) -> types.CallToolResult:
        for _ in range(self._max_rounds):
            if isinstance(reply, types.CallToolResult):
                return reply
            completed |= await self._complete(reply.steps)
            reply = await self._resumed(Turn(reply.saga_token, tuple(completed.values())))
        if isinstance(reply, types.CallToolResult):
            return reply
        raise SagaRoundsExceededError(self._max_rounds)

    async def _complete(self, steps: list[SagaStep]) -> dict[str, dict[str, Any]]:
        completed: dict[str, dict[str, Any]] = {}

        async def complete(step: SagaStep) -> None:
            completed[step.step_id] = await self._completed(step)

        async with anyio.create_task_group() as group:
            for step in steps:
                group.start_soon(complete, step)
        # In the order in which they were asked, so that a turn does not depend on who was quicker.
        return {step.step_id: completed[step.step_id] for step in steps}

    async def _completed(self, step: SagaStep) -> dict[str, Any]:
        answer: BaseModel
        if isinstance(step, SamplingStep):
            answer = await answer_sample(self._answerer, step.step_id, step.params)
        else:
            answer = await answer_elicit(self._answerer, step.step_id, step.params)
        kind = "error" if isinstance(answer, types.ErrorData) else "result"
        wire = answer.model_dump(by_alias=True, mode="json", exclude_none=True)
        return {"stepId": step.step_id, kind: wire}

    async def _resumed(self, turn: Turn) -> types.CallToolResult | ToolCallSagaResult:
        if self._on_turn is not None:
            self._on_turn(turn)
        params = {"sagaToken": turn.token, "completedSteps": [dict(step) for step in turn.steps]}
        return await self._send(RESUME_SAGA, params)

    async def _send(
        self, method: str, params: dict[str, Any]
    ) -> types.CallToolResult | ToolCallSagaResult:
        async def notify(progress: float, total: float | None, message: str | None) -> None:
            await self._answerer.notify(message or "", progress, total)

        request = _Request(method=method, params=encodable(params))
        try:
            reply = await self._client.session.send_request(
                request, _Reply, progress_callback=notify
            )
        except MCPError as error:
            if not _is_unknown(method, error):
                raise
            message = f"This server offers no sagas: it does not know {method}."
            raise MCPError(types.METHOD_NOT_FOUND, message, error.error.data) from error
        found = reply.model_dump(by_alias=True, mode="json", exclude_unset=True)
        # ``resultType`` does not decide: in the modern era the SDK marks a suspended saga complete.
        suspended = found.get("state") == "suspended"
        shape = ToolCallSagaResult if suspended else types.CallToolResult
        return shape.model_validate(found)


def _is_unknown(method: str, error: MCPError) -> bool:
    """Whether ``error`` says that the server does not know the method."""
    if error.code == types.INVALID_PARAMS and method == CALL_SAGA:
        return error.message == INVALID_IN_V1
    # A tool may raise an error with this code, too.
    return error.code == types.METHOD_NOT_FOUND and error.error.data in (None, method)


class _Request(types.Request[dict[str, Any], str]):
    method: str
    params: dict[str, Any]


class _Reply(types.Result):
    """A result with any fields."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="allow")

"""The client side of sagas: ``tools/callSaga``, then ``tools/resumeSaga`` until there is a result.

After a lost connection, a request is repeated only if the tool takes idempotency keys: then the
server has a store, and runs no turn twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, ClassVar

import anyio
import mcp_types as types
from mcp import Client, MCPError
from pydantic import BaseModel, ConfigDict, JsonValue

from anabranch._asking import Answerer
from anabranch._text import encodable
from anabranch.errors import AnabranchError
from anabranch.mcp._client import MAX_ROUNDS, SagaRequest, list_tools
from anabranch.mcp._protocol import answer_elicit, answer_sample
from anabranch.mcp._saga_shapes import (
    CALL_SAGA,
    RESUME_SAGA,
    SagaStep,
    SamplingStep,
    ToolCallSagaResult,
)
from anabranch.mcp._transports import PAUSES, is_lost, keyed_meta, new_key, takes_key

INVALID_IN_V1 = "Invalid request parameters"
"""The answer of servers of the SDK's first major version to an unknown method."""


class SagaRoundsExceededError(AnabranchError):
    """The server sent more than ``max_rounds`` replies with questions."""

    def __init__(self, max_rounds: int) -> None:
        self.max_rounds = max_rounds
        super().__init__(
            f"The saga asked in more than {max_rounds} turns. Give SagaClient more max_rounds,"
            " or resume its last turn.",
            max_rounds=max_rounds,
        )


@dataclass(frozen=True, slots=True)
class Turn:
    """The state of a saga on the client, as plain JSON, with which any process can continue it.

    Attributes:
        token: the server's latest token.
        steps: all answered steps so far, in the format of ``tools/resumeSaga``.
    """

    token: str
    steps: Sequence[Mapping[str, JsonValue]]


class SagaClient:
    """An MCP client that calls tools as sagas, and answers their steps.

    Args:
        client: a connected client, or a function that opens a connection, such as ``lambda:
            Client(url)``. After a lost connection, the function is called again.
        answerer: answers the steps, several at a time. If the answerer raises ``AnswerError``, the
            step is completed with that error. The answerer also receives progress; log messages go
            to the callback of ``client``.
        max_rounds: maximum replies with questions; then the call fails.
        on_turn: called with every turn before the turn is sent. Store the turn to resume an
            abandoned saga with :meth:`resume`; a server with a store does not run a turn twice.
    """

    def __init__(
        self,
        client: Client | Callable[[], AbstractAsyncContextManager[Client]],
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
        self, name: str, arguments: Mapping[str, Any] | None = None, *, key: str | None = None
    ) -> types.CallToolResult:
        """Call a tool and return its result, which may be an error result.

        ``key`` is the idempotency key of the call, by default a random key. If the server has a
        store, another call with the same key, tool and arguments continues the same saga.

        Raises:
            MCPError: if the server refused, or the connection broke. ``METHOD_NOT_FOUND`` means
                that the server offers no sagas.
            SagaRoundsExceededError: if the server sent more than ``max_rounds`` replies with
                questions.
            pydantic.ValidationError: if the server's reply is neither a result nor a suspended
                saga.
            Exception: if the answerer raises; in an ``ExceptionGroup``.
        """
        meta = keyed_meta(key or new_key())
        params = {"name": name, "arguments": dict(arguments or {}), "_meta": meta}
        return await self._run(_Saga(CALL_SAGA, params, name, is_repeatable=True))

    async def resume(self, turn: Turn) -> types.CallToolResult:
        """Continue the saga of ``turn``, and return the tool's result.

        Raises:
            Exception: if the call fails, as for :meth:`call_tool`.
        """
        completed = {str(step["stepId"]): dict(step) for step in turn.steps}
        return await self._run(self._resumed(turn, _Saga("", {}, completed=completed)))

    async def _run(self, saga: _Saga) -> types.CallToolResult:
        pauses = iter(PAUSES)
        lost: Exception | None = None
        while True:
            outcome = await self._attempt(saga, lost)
            if isinstance(outcome, types.CallToolResult):
                return outcome
            # A connected client cannot connect again.
            is_last = lost is not None and isinstance(self._client, Client)
            repeats = saga.is_repeatable and is_lost(outcome) and not is_last
            pause = next(pauses, None) if repeats else None
            if pause is None:
                raise outcome
            lost = lost or outcome
            await anyio.sleep(pause)

    async def _attempt(
        self, saga: _Saga, lost: Exception | None
    ) -> types.CallToolResult | Exception:
        try:
            async with self._connected() as client:
                try:
                    if lost is not None and not await self._may_repeat(client, saga):
                        saga.is_repeatable = False
                        return lost
                    return await self._drive(client, saga)
                except Exception as error:  # noqa: BLE001 - raised again by the caller
                    return error
        except Exception as error:  # noqa: BLE001 - what the connection raises; as above
            return error

    def _connected(self) -> AbstractAsyncContextManager[Client]:
        known = self._client
        return nullcontext(known) if isinstance(known, Client) else known()

    async def _may_repeat(self, client: Client, saga: _Saga) -> bool:
        known = (await list_tools(client)).get(saga.tool)
        return known is not None and takes_key(known)

    async def _drive(self, client: Client, saga: _Saga) -> types.CallToolResult:
        while True:
            reply = await self._send(client, saga.method, saga.params)
            if isinstance(reply, types.CallToolResult):
                return reply
            if saga.rounds == self._max_rounds:
                raise SagaRoundsExceededError(self._max_rounds)
            saga.rounds += 1
            could = saga.is_repeatable
            saga.is_repeatable = False  # an error of the answerer is not a lost connection
            saga.completed |= await self._complete(reply.steps)
            saga.is_repeatable = could
            self._resumed(Turn(reply.saga_token, tuple(saga.completed.values())), saga)

    async def _complete(self, steps: list[SagaStep]) -> dict[str, dict[str, Any]]:
        completed: dict[str, dict[str, Any]] = {}

        async def complete(step: SagaStep) -> None:
            completed[step.step_id] = await self._completed(step)

        async with anyio.create_task_group() as group:
            for step in steps:
                group.start_soon(complete, step)
        # In the order of asking, so that a turn does not depend on the speed of answers.
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

    def _resumed(self, turn: Turn, saga: _Saga) -> _Saga:
        if self._on_turn is not None:
            self._on_turn(turn)
        steps = [dict(step) for step in turn.steps]
        saga.method, saga.params = RESUME_SAGA, {"sagaToken": turn.token, "completedSteps": steps}
        return saga

    async def _send(
        self, client: Client, method: str, params: dict[str, Any]
    ) -> types.CallToolResult | ToolCallSagaResult:
        async def notify(progress: float, total: float | None, message: str | None) -> None:
            await self._answerer.notify(message or "", progress, total)

        request = SagaRequest(method=method, params=encodable(params))
        try:
            reply = await client.session.send_request(request, _Reply, progress_callback=notify)
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


@dataclass(slots=True)
class _Saga:
    """A running saga: its next request, which the client repeats if the connection is lost."""

    method: str
    params: dict[str, Any]
    tool: str = ""
    is_repeatable: bool = False
    completed: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    rounds: int = 0


def _is_unknown(method: str, error: MCPError) -> bool:
    if error.code == types.INVALID_PARAMS and method == CALL_SAGA:
        return error.message == INVALID_IN_V1
    # A tool may also raise an error with this code.
    return error.code == types.METHOD_NOT_FOUND and error.error.data in (None, method)


class _Reply(types.Result):
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="allow")

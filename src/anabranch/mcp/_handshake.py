"""MCP up to 2025-11-25: the body runs live, and sends its asks as requests to the client.

Each request carries the id of its ``tools/call``; without the id, it would be sent on a stream that
clients need not read.

A client waits for one reply while its user thinks, and many time out after sixty seconds without a
message. A *heartbeat* is a progress notification meanwhile: a client that gave a progress token, and
restarts its timeout at progress, keeps waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import NoReturn

import mcp_types as types
from mcp import MCPError
from mcp.shared.message import ServerMessageMetadata
from pydantic import ValidationError

from anabranch._aio import Clock, cancel_and_wait, pause
from anabranch._asking import answer_of_error
from anabranch._engine import Answer, Ask
from anabranch.errors import ToolError
from anabranch.mcp._protocol import to_answer, to_request
from anabranch.mcp._request import McpRequest


class Heartbeat:
    """The heartbeats of one request.

    Args:
        request: the request, whose client is asked; without a progress token, no heartbeat is sent.
        every: seconds between two heartbeats; ``None`` for none.
        clock: the time.
    """

    def __init__(self, request: McpRequest, every: float | None, clock: Clock) -> None:
        self._request = request
        self._every = every
        self._clock = clock
        self._waiting = 0
        self._beating: asyncio.Task[NoReturn] | None = None

    @asynccontextmanager
    async def waiting(self) -> AsyncGenerator[None]:
        """Send heartbeats inside the block; blocks may overlap, and share them."""
        self._waiting += 1
        if self._beating is None and self._every is not None:
            self._beating = asyncio.create_task(self._beat(self._every))
        try:
            yield
        finally:
            self._waiting -= 1
            if not self._waiting and self._beating is not None:
                # The task ends early only if it cannot send; then the call has ended as well.
                beating, self._beating = self._beating, None
                await cancel_and_wait([beating])

    async def _beat(self, every: float) -> NoReturn:
        while True:
            await pause(self._clock, every)
            await self._request.report_progress(None)


TIMES_ASKED = 3
"""Maximum attempts at a question whose answer is of the wrong kind; then it is an error."""


def asking(request: McpRequest, heartbeat: Heartbeat) -> Callable[[Ask], Awaitable[Answer]]:
    """Return a function that sends an ask to the client of ``request`` and returns the answer.

    The function raises ``ToolError`` if the connection was closed.
    """

    async def answer(ask: Ask) -> Answer:
        return await request_answer(ask.step_id, to_request(ask), request, heartbeat)

    return answer


async def request_answer(
    step_id: str, asked: types.InputRequest, request: McpRequest, heartbeat: Heartbeat
) -> Answer:
    """Send the question of the step ``step_id`` during ``request``, and return the client's answer.

    Raises:
        ToolError: if the connection was closed.
    """
    kind = "elicit"
    shape: type[types.Result] = types.ElicitResult
    if isinstance(asked, types.CreateMessageRequest):
        kind, shape = "sample", types.CreateMessageResultWithTools
    metadata = ServerMessageMetadata(related_request_id=request.request_id)
    for _ in range(TIMES_ASKED):
        try:
            async with heartbeat.waiting():
                result = await request.session.send_request(asked, shape, metadata=metadata)
        except MCPError as error:
            if _is_disconnect(error.error):
                # Not an answer: the tool must not continue as if the client had answered.
                raise ToolError("The client was disconnected while it was being asked.") from error
            said = error.error
            return answer_of_error(kind, step_id, said.code, said.message, said.data)
        except ValidationError:
            continue  # an answer of another kind
        if (answer := to_answer(kind, result)) is not None:
            return answer
    wrong = "the client's result does not answer this kind of question"
    return answer_of_error(kind, step_id, "InvalidReply", wrong)


def _is_disconnect(error: types.ErrorData) -> bool:
    """Return whether the SDK made this error itself; clients also use its code."""
    return error.code == types.CONNECTION_CLOSED and error.message == "Connection closed"

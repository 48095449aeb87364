"""MCP up to 2025-11-25: the body runs live, and sends its asks as requests to the client.

Each request carries the id of its ``tools/call``; without the id, it would be sent on a stream that
clients need not read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import mcp_types as types
from mcp import MCPError
from mcp.shared.message import ServerMessageMetadata
from pydantic import ValidationError

from anabranch._asking import answer_of_error
from anabranch._engine import Answer, Ask
from anabranch.errors import ToolError
from anabranch.mcp._heartbeat import Heartbeat
from anabranch.mcp._protocol import to_answer, to_request
from anabranch.mcp._request import McpRequest

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

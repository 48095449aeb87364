"""The calling side: the SDK's own ``Client``, answering with this library's words.

Owns the connection, and plain calls over it. Both eras arrive in the same callbacks: over requests
in the handshake era, over ``InputRequiredResult`` in the modern one, where the SDK drives the
rounds. What is asked is translated by ``answering.py``; sagas are driven by ``saga_client.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, cast

import mcp_types as types
from mcp import Client, MCPError, StdioServerParameters
from mcp.client import ClientRequestContext, Transport
from mcp.server import Server
from mcp.server.mcpserver import MCPServer

from anabranch.mcp._client_answers import Answerer, answer_elicit, answer_sample
from anabranch.mcp._protocol import STEP_ID_META

__all__ = [
    "MAX_ROUNDS",
    "Answerer",
    "Connectable",
    "Era",
    "call_tool",
    "connect",
    "list_tools",
    "offers_sagas",
]

Connectable: TypeAlias = MCPServer[Any] | Server[Any] | StdioServerParameters | Transport | str
"""What can be connected to: a server in this process, a command, a transport, a URL."""
Era: TypeAlias = Literal["auto", "modern", "handshake"]
MODES: dict[Era, str] = {"auto": "auto", "modern": "2026-07-28", "handshake": "legacy"}

MAX_ROUNDS = 100
"""The SDK's own default of 10 guards programs; a person notices when a tool asks for ever."""


def connect(
    server: Connectable,
    answerer: Answerer,
    *,
    era: Era = "auto",
) -> Client:
    """Return a client of ``server`` whose questions ``answerer`` answers."""
    able = answerer.capabilities

    async def sample(
        context: ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.CreateMessageResultWithTools | types.ErrorData:
        return await answer_sample(answerer, _step_id(context), params)

    async def elicit(
        context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        return await answer_elicit(answerer, _step_id(context), params)

    async def log(params: types.LoggingMessageNotificationParams) -> None:
        await answerer.log(params.level, str(params.data))

    tools = types.SamplingToolsCapability() if able.sampling_tools else None
    return Client(
        server,
        mode=MODES[era],
        sampling_callback=sample if able.sampling else None,
        sampling_capabilities=types.SamplingCapability(tools=tools),
        elicitation_callback=elicit if able.elicitation or able.elicitation_url else None,
        logging_callback=log,
        log_level="info",
        input_required_max_rounds=MAX_ROUNDS,
    )


async def call_tool(
    client: Client, name: str, arguments: dict[str, Any], answerer: Answerer
) -> types.CallToolResult:
    """Call a tool and return its result, which may be an error's.

    Raises:
        MCPError: the server refused, the connection broke, or ``answerer`` raised an
            :class:`AnswerError` in the modern era.
        InputRequiredRoundsExceededError: the tool asked in more rounds than is bearable.
    """

    async def notify(progress: float, total: float | None, message: str | None) -> None:
        await answerer.notify(message or "", progress, total)

    return await client.call_tool(name, arguments, progress_callback=notify)


async def list_tools(client: Client) -> dict[str, types.Tool]:
    """Return all tools of the server by name, in its order."""
    tools: dict[str, types.Tool] = {}
    cursor: str | None = None
    while True:
        page = await client.list_tools(cursor=cursor)
        known = len(tools)
        tools |= {tool.name: tool for tool in page.tools}
        cursor = page.next_cursor
        if cursor is None or len(tools) == known:  # a server that turns in circles ends here
            return tools


class _Probe(types.Request[dict[str, Any], str]):
    method: str
    params: dict[str, Any]


async def offers_sagas(client: Client) -> bool:
    """Ask the server whether it knows saga methods, without starting one.

    Nothing can be resumed without a token; only a server that lacks the method says that it does.
    """
    try:
        await client.session.send_request(
            _Probe(method="tools/resumeSaga", params={}),
            types.Result,
        )
    except MCPError as error:
        return error.code != types.METHOD_NOT_FOUND
    return True


def _step_id(context: ClientRequestContext) -> str:
    """The step's id: in ``_meta`` where our own servers write it, else the key of the round."""
    meta = cast("Mapping[str, object]", context.meta or {})
    told = meta.get(STEP_ID_META)
    return next((i for i in (told, context.request_id) if isinstance(i, str)), "")

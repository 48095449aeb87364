"""The calling side: the SDK's own ``Client``, answering with this library's words.

Owns the translation of what servers ask into ``SampleRequest``, ``ElicitRequest`` and
``UrlRequest``, and of replies back. Both eras arrive in the same callbacks: over requests in the
handshake era, over ``InputRequiredResult`` in the modern one, where the SDK drives the rounds. Who
answers, and in what order, is decided by the :class:`Answerer`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Literal, Protocol, TypeAlias, cast

import mcp_types as types
from mcp import Client, MCPError, StdioServerParameters
from mcp.client import ClientRequestContext, Transport
from mcp.server import Server
from mcp.server.mcpserver import MCPServer
from pydantic import ValidationError

from anabranch.edges.direct import AnswerError
from anabranch.edges.mcp.render import CONTEXT_BOUNDARY, STEP_ID_META
from anabranch.elicitation import describe
from anabranch.host import Capabilities
from anabranch.messages import (
    ElicitReply,
    ElicitRequest,
    LogLevel,
    SampleReply,
    SampleRequest,
    UrlRequest,
)

__all__ = ["Answerer", "Connectable", "Era", "call_tool", "connect", "list_tools", "offers_sagas"]

Connectable: TypeAlias = MCPServer[Any] | Server[Any] | StdioServerParameters | Transport | str
"""What can be connected to: a server in this process, a command, a transport, a URL."""
Era: TypeAlias = Literal["auto", "modern", "handshake"]
MODES: dict[Era, str] = {"auto": "auto", "modern": "2026-07-28", "handshake": "legacy"}

MAX_ROUNDS = 100
"""The SDK's own default of 10 guards programs; a person notices when a tool asks for ever."""


class Answerer(Protocol):
    """Whoever answers what a server asks: a terminal, a file, a test.

    ``step_id`` names the step of the call that asks, where the server tells it, and is empty
    otherwise. A method may raise :class:`AnswerError`; the server is answered with that error. In
    the modern era no error can be answered, so it ends the call.
    """

    @property
    def capabilities(self) -> Capabilities:
        """What is declared to the server. Forms and URLs are declared together, by the SDK."""
        ...

    async def sample(self, step_id: str, request: SampleRequest) -> SampleReply:
        """Answer as a model."""
        ...

    async def elicit(self, step_id: str, request: ElicitRequest | UrlRequest) -> ElicitReply:
        """Answer as the person."""
        ...

    async def log(self, level: LogLevel, message: str) -> None:
        """Take a log line."""
        ...

    async def notify(self, message: str, progress: float, total: float | None) -> None:
        """Take a progress message."""
        ...


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
        try:
            return _sampled(await answerer.sample(_step_id(context), _sample_request(params)))
        except AnswerError as error:
            return _error(error)

    async def elicit(
        context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        step_id = _step_id(context)
        try:
            reply = await answerer.elicit(step_id, _elicit_request(step_id, params))
        except AnswerError as error:
            return _error(error)
        return types.ElicitResult.model_validate(reply.wire())

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

    What it would resume does not exist; only a server that lacks the method says that it does.
    """
    try:
        await client.session.send_request(
            _Probe(method="tools/resumeSaga", params={"sagaToken": "", "completedSteps": []}),
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


def _sample_request(params: types.CreateMessageRequestParams) -> SampleRequest:
    wire = params.model_dump(by_alias=True, mode="json", exclude_none=True)
    choice: dict[str, Any] = wire.get("toolChoice") or {}
    wire["toolChoice"] = choice.get("mode")
    try:
        return SampleRequest.model_validate(wire)
    except ValidationError as error:
        raise AnswerError(f"this client cannot read the request: {describe(error)}") from error


def _elicit_request(step_id: str, params: types.ElicitRequestParams) -> ElicitRequest | UrlRequest:
    if isinstance(params, types.ElicitRequestURLParams):
        known_as = params.elicitation_id or step_id
        return UrlRequest(message=params.message, url=params.url, elicitation_id=known_as)
    schema = dict(params.requested_schema)
    message, _, appendix = params.message.partition(f"\n\n{CONTEXT_BOUNDARY}\n")
    context = schema.pop("x-elicit-context", None)
    if context is None and appendix:  # the modern era's schemas have no place for it
        with suppress(ValueError):
            context = json.loads(appendix)
    return ElicitRequest(message=message, requested_schema=schema, context=context)


def _sampled(
    reply: SampleReply,
) -> types.CreateMessageResult | types.CreateMessageResultWithTools:
    wire = reply.wire()
    wire.pop("usage", None)  # the protocol has no place for it
    if len(reply.content) == 1:
        wire["content"] = wire["content"][0]  # all that clients and servers knew before 2025-11-25
        if not reply.tool_calls:
            return types.CreateMessageResult.model_validate(wire)
    return types.CreateMessageResultWithTools.model_validate(wire)


def _error(error: AnswerError) -> types.ErrorData:
    code = error.code if isinstance(error.code, int) else types.INTERNAL_ERROR
    return types.ErrorData(code=code, message=str(error))

"""The client side: the SDK's ``Client``, with an ``Answerer`` for the questions of servers.

Both eras arrive in the same callbacks: as requests in the handshake era, and as an
``InputRequiredResult`` in the modern era, where the SDK drives the rounds.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Literal, TypeAlias, TypeVar, cast

import mcp_types as types
from mcp import Client, MCPError, StdioServerParameters
from mcp.client import ClientRequestContext, Transport
from mcp.server import Server
from mcp.server.mcpserver import MCPServer

from anabranch._asking import Answerer
from anabranch._schemas import UnusableSchemaError, misfit
from anabranch._text import encodable, printable_line
from anabranch.errors import ToolError
from anabranch.mcp._odd_answers import has_structured_content, with_content, with_sound_tools
from anabranch.mcp._protocol import CONTEXT_META, STEP, STEP_ID_META, answer_elicit, answer_sample
from anabranch.mcp._transports import keyed_meta

Connectable: TypeAlias = MCPServer[Any] | Server[Any] | StdioServerParameters | Transport | str
"""A server to connect to: an object in this process, a command, a transport, or a URL."""
Era: TypeAlias = Literal["auto", "modern", "handshake"]
MODES: dict[Era, str] = {"auto": "auto", "modern": "2026-07-28", "handshake": "legacy"}

MOST_LISTED = 10_000
"""Maximum tools in the list of a server."""

MAX_ROUNDS = 100
"""Maximum rounds of a call. The SDK's default of 10 guards programs; a user notices endless questions."""


R = TypeVar("R")


class _Client(Client):
    """The SDK's client, with repaired answers, bounded checks, and contexts in the modern era."""

    checks_results = True

    async def __aenter__(self) -> Client:
        client = await super().__aenter__()
        client.session.validate_tool_result = partial(  # type: ignore[method-assign]
            _check_result if self.checks_results else _unchecked, client
        )
        session: Any = client.session
        # The SDK checks an answer as a whole, and has no public hook before that check.
        dispatcher = session._dispatcher  # noqa: SLF001
        dispatcher.send_raw_request = partial(_repaired, client, dispatcher.send_raw_request)
        return client

    async def _drive_input_required(
        self,
        first: R | types.InputRequiredResult,
        retry: Callable[
            [types.InputResponses | None, str | None], Awaitable[R | types.InputRequiredResult]
        ],
    ) -> R:
        # The SDK passes the questions of a result to callbacks, without public access to its _meta.
        async def retried(
            responses: types.InputResponses | None, state: str | None
        ) -> R | types.InputRequiredResult:
            return _with_contexts(await retry(responses, state))

        return await super()._drive_input_required(_with_contexts(first), retried)


async def _repaired(client: Client, send: Any, method: str, *rest: Any, **named: Any) -> Any:  # noqa: ANN401 - JSON
    """Send a request, and return its answer; repair or drop parts that the SDK would refuse."""
    raw = await send(method, *rest, **named)
    match method:
        case "tools/list":
            return with_sound_tools(raw, client.protocol_version)
        case "tools/call":
            return with_content(raw)
        case _:
            return raw


async def _unchecked(_client: Client, _name: str, _result: types.CallToolResult) -> None:
    """Accept any result, because the caller compares it with the schema."""


async def _check_result(client: Client, name: str, result: types.CallToolResult) -> None:
    session: Any = client.session
    if name not in session._tool_output_schemas:  # noqa: SLF001 - the SDK has no public way to them
        await session.list_tools()
    schema: dict[str, Any] | None = session._tool_output_schemas.get(name)  # noqa: SLF001
    if schema is None:
        return
    tool = f"the tool {printable_line(name)!r}"
    if not has_structured_content(result):
        raise ToolError(f"T{tool[1:]} has an output schema but did not return structured content.")
    try:
        problem = misfit(schema, result.structured_content)
    except UnusableSchemaError as error:
        raise ToolError(f"The output schema of {tool} is unusable: {error}.") from error
    if problem is not None:
        raise ToolError(f"The result of {tool} does not fit its output schema: {problem}.")


def _with_contexts(result: R) -> R:
    if isinstance(result, types.InputRequiredResult):
        contexts: Any = (result.meta or {}).get(CONTEXT_META)
        for key, request in (result.input_requests or {}).items():
            if isinstance(contexts, dict) and key in contexts and request.params is not None:
                request.params.meta = cast("Any", {CONTEXT_META: contexts[key]})
    return result


def connect(
    server: Connectable, answerer: Answerer, *, era: Era = "auto", checks_results: bool = True
) -> Client:
    """Return a client of ``server``; ``checks_results`` compares results with output schemas."""
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
    others = types.SamplingContextCapability() if able.sampling_context else None
    client = _Client(
        server,
        mode=MODES[era],
        sampling_callback=sample if able.sampling else None,
        sampling_capabilities=types.SamplingCapability(tools=tools, context=others),
        elicitation_callback=elicit if able.elicitation or able.elicitation_url else None,
        logging_callback=log,
        log_level="info",
        input_required_max_rounds=MAX_ROUNDS,
    )
    client.checks_results = checks_results
    return client


COARSE = 2.0**-8


def is_heartbeat(progress: float, total: float | None, message: str | None) -> bool:
    """Return whether a progress notification is a heartbeat, which a user need not see.

    The protocol cannot mark heartbeats; no tool counts in such small steps.
    """
    return message is None and total is None and progress % COARSE != 0 and progress % STEP == 0


async def call_tool(
    client: Client, name: str, arguments: dict[str, Any], answerer: Answerer, *, key: str = ""
) -> types.CallToolResult:
    """Call a tool and return its result, which may be an error result.

    With an idempotency ``key``, a repeated call is the same call if the server has a store.

    Raises:
        MCPError: if the server refused, the connection broke, or ``answerer`` raised an
            :class:`AnswerError` in the modern era.
        InputRequiredRoundsExceededError: if the tool asked in more than :data:`MAX_ROUNDS` rounds.
    """

    async def notify(progress: float, total: float | None, message: str | None) -> None:
        if not is_heartbeat(progress, total, message):
            await answerer.notify(message or "", progress, total)

    meta = keyed_meta(key) if key else None
    given = encodable(name), encodable(arguments)
    return await client.call_tool(*given, progress_callback=notify, meta=meta)


async def list_tools(client: Client) -> dict[str, types.Tool]:
    tools: dict[str, types.Tool] = {}
    cursor: str | None = None
    while True:
        page = await client.list_tools(cursor=cursor)
        known = len(tools)
        tools |= {tool.name: tool for tool in page.tools}
        cursor = page.next_cursor
        # The loop also ends for a server that repeats a page, or never ends.
        if cursor is None or len(tools) == known or len(tools) > MOST_LISTED:
            return tools


class SagaRequest(types.Request[dict[str, Any], str]):
    """A request that the SDK does not know."""

    method: str
    params: dict[str, Any]


async def offers_sagas(client: Client) -> bool:
    """Return whether the server knows the saga methods, without starting a saga.

    A request without a token fails; only a server without the method reports an unknown method.
    """
    try:
        probe = SagaRequest(method="tools/resumeSaga", params={})
        await client.session.send_request(probe, types.Result)
    except MCPError as error:
        return error.code != types.METHOD_NOT_FOUND
    return True


def _step_id(context: ClientRequestContext) -> str:
    """Return the step's id: from ``_meta`` if our servers wrote it, else the key of the round."""
    meta = cast("Mapping[str, object]", context.meta or {})
    given = meta.get(STEP_ID_META)
    return next((i for i in (given, context.request_id) if isinstance(i, str)), "")

"""Tools into an ``MCPServer``: one function for the SDK, two eras behind it.

Owns the registration of tools and the choice of the era for each request. It uses the SDK's
public surface alone (``logs.py`` has the one exception), so that a tool can be added to any
server its user already has.
"""

from __future__ import annotations

import asyncio
import inspect
import warnings
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import mcp_types as types
from mcp import MCPDeprecationWarning, MCPError
from mcp.server.mcpserver import Context, MCPServer, RequestStateSecurity
from mcp.server.mcpserver.exceptions import ToolError as McpToolError
from mcp_types.version import is_version_at_least

from anabranch.call import Call, Journal, Notice, Sink
from anabranch.edges.mcp.arguments import MISSING, open_parameters, validate
from anabranch.edges.mcp.handshake import drive_by_requests
from anabranch.edges.mcp.logs import is_wanted, offer_log_level
from anabranch.edges.mcp.render import capabilities_of, required_capabilities
from anabranch.edges.mcp.rounds import read_state, run_round
from anabranch.edges.opening import Runtime, new_journal, open_call
from anabranch.errors import AnabranchError, CapabilityError
from anabranch.host import Capabilities, Host
from anabranch.limits import Limits
from anabranch.sampling import Sampler
from anabranch.tool import Tool

__all__ = ["create_server", "install"]

MODERN = "2026-07-28"
CONTEXT_PARAMETER = "anabranch_mcp_context"


@dataclass(frozen=True, slots=True)
class Service:
    """What all tools of one installation share."""

    runtime: Runtime = field(default_factory=Runtime)
    sampler: Sampler | None = None


def create_server(
    name: str,
    tools: Iterable[Tool[Any]],
    *,
    keys: Sequence[bytes | str] | None = None,
    ttl: float = 600.0,
    sampler: Sampler | None = None,
    limits: Limits | None = None,
    instructions: str | None = None,
    version: str = "",
) -> MCPServer[Any]:
    """Return an ordinary ``MCPServer`` that offers ``tools`` in both eras.

    Args:
        name: the server's name; states are bound to it, so workers that share keys share it too.
        tools: what it offers.
        keys: secrets of at least 32 bytes that seal the state between rounds; the first seals,
            all open. Without keys one is made for this process, and open questions do not
            survive it.
        ttl: seconds that a person has for one round of questions.
        sampler: a model of the server's own; without one, the client's is asked.
        limits: enclose every call, in addition to each tool's own.
        instructions: told to clients about the server.
        version: told to clients.

    Raises:
        ValueError: a key is too short, or two tools have the same name.
    """
    security = None if keys is None else RequestStateSecurity(keys=list(keys), ttl=ttl)
    server: MCPServer[Any] = MCPServer(
        name,
        instructions=instructions,
        version=version,
        request_state_security=security or RequestStateSecurity.ephemeral(ttl=ttl),
        log_level="WARNING",
    )
    install(server, *tools, sampler=sampler, limits=limits)
    return server


def install(
    server: MCPServer[Any],
    *tools: Tool[Any],
    sampler: Sampler | None = None,
    limits: Limits | None = None,
) -> None:
    """Add ``tools`` to a server that you have. Its keys and their lifetime are its own.

    Raises:
        ValueError: two of the tools have the same name, or the server has a tool of that name.
    """
    names = [tool.name for tool in tools]
    if taken := sorted(_names_on(server).intersection(names)):
        # The SDK would keep the old one, with no more than a warning in its log.
        raise ValueError(f"{server.name!r} already has a tool named {', '.join(taken)}")
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"Two tools are named {', '.join(repeated)}; give one of them name=")
    service = Service(Runtime(limits=limits or Limits()), sampler)
    for tool in tools:
        server.add_tool(as_function(tool, service), name=tool.name, description=tool.description)
    offer_log_level(server)


def _names_on(server: MCPServer[Any]) -> set[str]:
    """Return the names of the server's tools. ``list_tools`` is async, but has nothing to wait for."""
    listing = server.list_tools()
    try:
        listing.send(None)
    except StopIteration as listed:
        tools: list[types.Tool] = listed.value
        return {tool.name for tool in tools}
    listing.close()  # a subclass that does wait; the SDK warns of names that are taken
    return set()


def as_function(tool: Tool[Any], service: Service) -> Callable[..., Awaitable[Any]]:
    """Return ``tool`` as the SDK wants it: a function with the author's parameters and a ``Context``.

    From these the SDK makes the schemas; arguments are checked by the tool.
    """

    async def call_tool(**parsed: Any) -> object:  # noqa: ANN401 - whatever the client sent
        context: Context[Any, Any] = parsed.pop(CONTEXT_PARAMETER)
        with _told_as_the_sdk_does(tool, context):
            arguments = validate(tool, _given(tool, parsed, context), parsed)
            return await _serve(tool, arguments, context, service)

    parameters = [
        *open_parameters(tool),
        inspect.Parameter(CONTEXT_PARAMETER, inspect.Parameter.KEYWORD_ONLY, annotation=Context),
    ]
    call_tool.__name__ = call_tool.__qualname__ = tool.name
    call_tool.__doc__ = tool.description
    signature = inspect.Signature(parameters, return_annotation=tool.returns)
    call_tool.__signature__ = signature  # type: ignore[attr-defined]
    call_tool.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    if tool.returns is not inspect.Signature.empty:
        call_tool.__annotations__["return"] = tool.returns
    return call_tool


@contextmanager
def _told_as_the_sdk_does(
    tool: Tool[Any], context: Context[Any, Any]
) -> Generator[None, None, None]:
    """Turn our errors into those whose message the SDK shows; it masks all others."""
    try:
        yield
    except CapabilityError as error:
        if not _is_modern(context):
            raise McpToolError(str(error)) from error
        raise MCPError(
            types.MISSING_REQUIRED_CLIENT_CAPABILITY,
            str(error),
            required_capabilities(error.capability),
        ) from error
    except AnabranchError as error:
        raise McpToolError(str(error)) from error
    except asyncio.CancelledError as cancelled:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        # The tool's own: passed on, it would end the connection, and all other calls on it.
        raise RuntimeError(f"tool {tool.name!r} was cancelled from within") from cancelled


def _given(
    tool: Tool[Any], parsed: Mapping[str, Any], context: Context[Any, Any]
) -> Mapping[str, Any]:
    """Return the arguments as they came, since the SDK drops those that it does not know.

    Where the request is for another tool, which calls this one, what that one gave is all there is.
    """
    params = context.request_context.params or {}
    if params.get("name") == tool.name:
        arguments: Mapping[str, Any] = params.get("arguments") or {}
        return arguments
    return {name: value for name, value in parsed.items() if value is not MISSING}


def _is_modern(context: Context[Any, Any]) -> bool:
    version = context.protocol_version
    return version is not None and is_version_at_least(version, MODERN)


async def _serve(
    tool: Tool[Any], arguments: dict[str, Any], context: Context[Any, Any], service: Service
) -> object:
    modern = _is_modern(context)

    def opened(journal: Journal, capabilities: Capabilities) -> Call[Any]:
        return open_call(
            tool,
            arguments,
            journal,
            host=Host(capabilities, service.sampler),
            runtime=service.runtime,
            sink=_sink(context, journal),
        )

    def new() -> Journal:
        return new_journal(service.runtime)

    declared = context.client_capabilities
    if modern:
        journal = read_state(context.request_state, context.input_responses, new)
        async with opened(journal, capabilities_of(declared)) as call:
            return await run_round(call, tool.name)
    # A stateless HTTP session of the handshake era does not know what its client declared.
    unknown = declared is None
    async with opened(new(), Capabilities() if unknown else capabilities_of(declared)) as call:
        return await drive_by_requests(call, context.session, context.request_id)


def _sink(context: Context[Any, Any], journal: Journal) -> Sink:
    async def deliver(notice: Notice) -> None:
        if notice.level is None:
            progress = journal.progressed if notice.progress is None else notice.progress
            await context.session.report_progress(progress, notice.total, notice.message)
            return
        if not is_wanted(context.session, notice.level):
            return
        with warnings.catch_warnings():
            # Deprecated by SEP-2577 and without a successor; it is dropped by the SDK where the
            # client has not asked for it.
            warnings.simplefilter("ignore", MCPDeprecationWarning)
            sending = context.session.send_log_message(  # pyright: ignore[reportDeprecated]
                notice.level, notice.message, related_request_id=context.request_id
            )
        await sending

    return deliver

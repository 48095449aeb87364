"""Makes one MCP server of all tools and servers in the targets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from anabranch._terminal import UsageError
from anabranch.cli._targets import Found
from anabranch.errors import StoreError
from anabranch.mcp import ServerOptions, install_fastmcp

if TYPE_CHECKING:
    from fastmcp import FastMCP
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from mcp.server.mcpserver import InvalidRequestState, MCPServer, RequestStateCodec
from mcp.server.request_state import AESGCMRequestStateCodec, RequestStateBoundary

from anabranch._asking import Sampler
from anabranch._budget import UNLIMITED, Limits
from anabranch.cli._engine_option import open_engine
from anabranch.cli._targets import is_fastmcp
from anabranch.mcp import (
    ANSWER_QUESTIONS,
    CONTINUE_CALL,
    GRACE,
    HEARTBEAT,
    TTL,
    Ask,
    SamplerMode,
    create_server,
    install,
)
from anabranch.tool import Tool

if TYPE_CHECKING:
    from anabranch.cli._targets import AnyServer


ITS_OWN = (
    "The tools of a FastMCP server are run by FastMCP: --store, --model and limits have no effect on"
    " them, and a question that they ask over MCP 2026-07-28 fails there."
)


def assemble_fastmcp(found: Found, options: ServerOptions) -> FastMCP[Any]:
    """Return the FastMCP server of the targets, with their tools.

    Raises:
        UsageError: if there are other servers, two tools have the same name, or the store's URL is
            invalid.
    """
    server, *others = found.fastmcp
    if others or found.servers:
        raise UsageError(
            "A FastMCP server cannot be merged with another server: serve them one by one, as"
            " TARGET:attribute."
        )
    there = {tool.name for tool in anyio.run(server.list_tools)}
    new = [tool for tool in found.tools if tool.name not in there]
    try:
        if new:
            install_fastmcp(server, *new, options=options)
    except ValueError as error:
        raise UsageError(f"{error}.") from error
    except StoreError as error:
        raise UsageError(str(error)) from error
    return server


def foreign(found: Found) -> str:
    """Return an error about options for a FastMCP server without tools of ours; else nothing."""
    return ITS_OWN if found.fastmcp and not found.tools else ""


def fastmcp_app(
    server: FastMCP[Any], security: TransportSecuritySettings, session_ttl: float | None
) -> ASGIApp:
    """Return the HTTP application of a server, at ``/mcp``, guarded as the SDK's are."""
    app = server.http_app(
        path="/mcp",
        stateless_http=session_ttl is None,
        session_idle_timeout=session_ttl,
        host_origin_protection=False,
    )
    guard = TransportSecurityMiddleware(security)

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        refusal = None
        if scope["type"] == "http":
            is_post = scope["method"] == "POST" and scope["path"] == "/mcp"
            refusal = await guard.validate_request(Request(scope), is_post)
        await (refusal or app)(scope, receive, send)

    return serve


@dataclass(frozen=True, slots=True)
class Persistence:
    """The options for storing and ending calls, in a form that another process can receive.

    Attributes:
        store: URL of a store; without one, all state travels with the client.
        ttl: seconds that a user has for one round of questions.
        continue_calls: whether to offer ``continue_call``, which needs a store.
        grace: seconds in which a server that stops undoes its calls.
        engine: name of the engine that lets one process of many expire calls.
        max_running: maximum calls that a process runs at the same time.
        version: version of the tools' code; by default, a digest of it.
    """

    store: str | None = field(default=None, repr=False)
    ttl: float = TTL
    continue_calls: bool = True
    grace: float = GRACE
    engine: str | None = field(default=None, repr=False)
    max_running: int | None = None
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Asking:
    """The options for asking clients, in a form that another process can receive.

    Attributes:
        sampler_mode: cases in which the server asks its own model.
        ask: whether questions reach users of clients that show none.
        ask_url: URL of the server's pages for such users, if it has any.
        sagas: whether to offer the saga methods.
        heartbeat: seconds between two signs of life during a question; ``None`` for none.
    """

    sampler_mode: SamplerMode = "own"
    ask: Ask = "client"
    ask_url: str | None = None
    sagas: bool = True
    heartbeat: float | None = HEARTBEAT


NOT_STORED = Persistence()
CLIENTS_ONLY = Asking()


def server_options(
    keys: Sequence[str],
    sampler: Sampler | None = None,
    persistence: Persistence = NOT_STORED,
    asking: Asking = CLIENTS_ONLY,
    limits: Limits = UNLIMITED,
) -> ServerOptions:
    """Return the server's options from the command line; the caller closes their engine.

    Raises:
        UsageError: if there is no such engine.
    """
    return ServerOptions(
        keys=keys,
        ttl=persistence.ttl,
        store=persistence.store,
        engine=open_engine(persistence.engine, persistence.store),
        sampler=sampler,
        sampler_mode=asking.sampler_mode,
        ask=asking.ask,
        ask_url=asking.ask_url,
        sagas=asking.sagas,
        heartbeat=asking.heartbeat,
        continue_calls=persistence.continue_calls,
        grace=persistence.grace,
        max_running=persistence.max_running,
        limits=None if limits == UNLIMITED else limits,
        code_version=persistence.version,
    )


def assemble(found: Found, options: ServerOptions, name: str = "anabranch") -> MCPServer[Any]:
    """Return a server with all tools: the first server found, or a new one called ``name``.

    A server's own tools stay unchanged. The tools of further servers are added to the first, except
    those that it already has.

    Raises:
        UsageError: if two different tools have one name, or the store's URL is invalid.
    """
    try:
        if not found.servers:
            return create_server(name, found.tools, version=found.version, options=options)
        server, *others = found.servers
        _merge(server, others)
        _add(server, found.tools, options)
    except ValueError as error:
        raise UsageError(f"{error}.") from error
    except StoreError as error:
        raise UsageError(str(error)) from error
    return server


def _add(server: MCPServer[Any], tools: Sequence[Tool[Any]], options: ServerOptions) -> None:
    there = set(tool_names(server))
    new = [tool for tool in tools if tool.name not in there]
    if not new:
        return
    # The server's author may have put tools into a store of their own.
    continues = options.continue_calls and CONTINUE_CALL not in there
    if ANSWER_QUESTIONS in there:
        options = replace(options, ask="client", ask_url=None)
    install(server, *new, options=options, continue_calls=continues)


def seal_probe(server: AnyServer) -> str:
    """Return a text that only a server with the same keys opens."""
    return _codec(server).seal(b"")


def opens(server: AnyServer, probe: str) -> bool:
    """Whether ``server`` opens what the server of ``probe`` has sealed."""
    try:
        return _codec(server).unseal(probe) == b""
    except InvalidRequestState:
        return False


def seals_with(server: AnyServer, keys: Sequence[str]) -> bool:
    """Whether ``server`` seals with one of ``keys``."""
    try:
        return AESGCMRequestStateCodec(keys).unseal(seal_probe(server)) == b""
    except InvalidRequestState:
        return False


def _codec(server: AnyServer) -> RequestStateCodec:
    # The SDK puts one on every server, and has no public way to it.
    if is_fastmcp(server):
        middleware = server._mcp_server.middleware  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    else:
        middleware = server._lowlevel_server.middleware  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    (boundary,) = [each for each in middleware if isinstance(each, RequestStateBoundary)]
    return boundary._security.codec  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def tool_names(server: AnyServer) -> list[str]:
    """Return the names of all tools of a server that is not running yet."""
    if is_fastmcp(server):
        return [tool.name for tool in anyio.run(server.list_tools)]
    return [tool.name for tool in anyio.run(server.list_tools)]


def _merge(server: MCPServer[Any], others: Sequence[MCPServer[Any]]) -> None:
    # The SDK has no public access to registered tools, and its add_tool takes functions alone.
    tools = server._tool_manager._tools  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    for other in others:
        for tool in other._tool_manager.list_tools():  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
            if tool.name in tools:
                raise ValueError(
                    f"Two servers have a tool named {tool.name}; serve them one by one,"
                    " as TARGET:attribute"
                )
            tools[tool.name] = tool

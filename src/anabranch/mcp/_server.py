"""Our tools on a server: on the SDK's ``MCPServer``, new or existing, or on one of FastMCP.

FastMCP takes a second to import, so functions import it when they are called.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mcp.server.lowlevel import Server
from mcp.server.mcpserver import MCPServer, RequestStateSecurity
from typing_extensions import Unpack

from anabranch._aio import Clock
from anabranch.errors import needs_extra
from anabranch.mcp._continue_tools import ContinueTool
from anabranch.mcp._defaults import TTL
from anabranch.mcp._installation import Installation, offer_routes, require_server
from anabranch.mcp._options import (
    Keys,
    ServerKeywords,
    ServerOptions,
    ToolKeywords,
    options_for,
    options_of,
    sealer_of,
    token_ttl,
)
from anabranch.mcp._request import offer_log_level
from anabranch.mcp._sdk_tool import Sagas, SdkTool
from anabranch.tool import Tool, require_tools

if TYPE_CHECKING:
    from fastmcp import FastMCP
    from fastmcp.server.extensions import ServerExtension
    from fastmcp.tools.base import Tool as FastMCPTool


def create_server(
    name: str,
    tools: Iterable[Tool[Any]],
    *,
    instructions: str | None = None,
    version: str = "",
    options: ServerOptions | None = None,
    **keywords: Unpack[ServerKeywords],
) -> MCPServer[Any]:
    """Return an ``MCPServer`` that offers ``tools`` to clients of all MCP revisions, also as sagas.

    With a store, the running server ends expired calls and runs their undos.

    Args:
        name: the server's name. Sealed states are valid only for this name, so processes that share
            keys must share the name.
        tools: the tools.
        instructions: instructions for the client's model, which the server sends to clients.
        version: the server's version, sent to clients.
        options: the options of the tools.
        keywords: fields of :class:`ServerOptions`, which replace those of ``options``.

    Raises:
        ValueError: if a key is too short, or two tools have the same name.
        StoreError: if the store's URL is invalid.
    """
    checked, given = require_tools("create_server()", tools), options_of(options, keywords)
    installation = Installation(checked, given, name)
    ttl = token_ttl(given)
    security = (
        RequestStateSecurity.ephemeral(ttl=ttl)
        if given.keys is None
        else RequestStateSecurity(keys=list(given.keys), ttl=ttl)
    )
    with _root_logger_left_alone():
        server: MCPServer[Any] = MCPServer(
            name,
            instructions=instructions,
            version=version,
            tools=[SdkTool.of(each, installation.service) for each in _hosted(installation)],
            request_state_security=security,
            auth=given.auth,
            token_verifier=given.token_verifier,
            log_level="WARNING",
        )
    _offer_sagas(server, given)
    _run_along(server, installation)
    offer_routes(installation, server)
    offer_log_level(server)
    return server


@contextmanager
def _root_logger_left_alone() -> Generator[None]:
    """Disable the SDK's ``logging.basicConfig``: the application configures its own logging."""
    occupied = logging.NullHandler()
    logging.root.addHandler(occupied)
    try:
        yield
    finally:
        logging.root.removeHandler(occupied)


def install(
    server: MCPServer[Any],
    *tools: Tool[Any],
    options: ServerOptions | None = None,
    **keywords: Unpack[ServerKeywords],
) -> Installation:
    """Add ``tools`` to an existing ``MCPServer``, and the saga methods if it lacks them.

    The existing server seals the state of ``tools/call``. ``keys`` and ``ttl`` apply to the tokens
    of sagas, the handles of unfinished calls, and links to questions. With a store, the running
    server ends expired calls; a server that runs already does so after the first call.

    Args:
        server: the server.
        tools: the tools to add.
        options: the options of the tools.
        keywords: fields of :class:`ServerOptions`, which replace those of ``options``.

    Raises:
        ValueError: if a key is too short, two of the tools have the same name, or the server has a
            tool of that name.
        StoreError: if the store's URL is invalid.
        TypeError: if the server is of another kind; the message names the right function.
    """
    require_server(server, MCPServer)
    require_tools("install()", tools)
    given = options_for("MCPServer(…)", options, keywords)
    installation = Installation(tools, given, server.name)
    # The SDK takes tools and extensions when a server is made; on an existing server, add_tool takes
    # functions alone. So this puts a Tool where add_tool puts the tools that it makes.
    manager = server._tool_manager  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    if taken := sorted(name for name in installation.names if manager.get_tool(name)):
        # The SDK would ignore the new tool, with only a warning in its log.
        raise ValueError(f"{server.name!r} already has a tool named {', '.join(taken)}")
    made = {each.name: SdkTool.of(each, installation.service) for each in _hosted(installation)}
    manager._tools.update(made)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    _offer_sagas(server, given)
    _run_along(server, installation)
    offer_routes(installation, server)
    offer_log_level(server)
    return installation


def _hosted(installation: Installation) -> list[Tool[Any] | ContinueTool]:
    return [*installation.tools, *installation.continue_tools]


def _offer_sagas(server: MCPServer[Any], options: ServerOptions) -> None:
    # The SDK has no public access to a server's extensions, and cannot add one later.
    known = server._extensions  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    if options.sagas and not any(isinstance(each, Sagas) for each in known):
        sagas = Sagas(sealer_of(options, server.name), server)
        server._apply_extension(sagas)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def _run_along(server: MCPServer[Any], installation: Installation) -> None:
    # The SDK accepts a lifespan only when a server is constructed.
    lowlevel = server._lowlevel_server  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    own = lowlevel.lifespan

    @asynccontextmanager
    async def lifespan(running: Server[Any]) -> AsyncGenerator[Any]:
        async with own(running) as state, installation.running():
            yield state

    lowlevel.lifespan = lifespan


def as_fastmcp_tool(
    tool: Tool[Any], *, options: ServerOptions | None = None, **keywords: Unpack[ToolKeywords]
) -> FastMCPTool:
    """Return ``tool`` as a FastMCP tool, for ``add_tool``; every revision of MCP can call it.

    With a store, each effect happens once, however often clients repeat a request. After the first
    call, the tool also ends expired calls. Only :func:`install_fastmcp` adds ``continue_call``.

    Args:
        tool: the tool.
        options: the options of its calls; ``keys`` and ``continue_calls`` do not apply to a single
            tool, and ``FastMCP(request_state_security=)`` sets ``ttl``.
        keywords: fields of :class:`ServerOptions`, which replace those of ``options``.

    Raises:
        ImportError: if the extra ``fastmcp`` is not installed.
        StoreError: if the store's URL is invalid.
    """
    with needs_extra("fastmcp", "Serving tools with FastMCP"):
        from anabranch.mcp._fastmcp_tool import FastMcpTool  # noqa: PLC0415 - an extra
    require_tools("as_fastmcp_tool()", [tool])
    given = options_for("FastMCP(…)", options, keywords)
    given = replace(given, continue_calls=False, ask="client", ask_url=None)
    return FastMcpTool.of(tool, Installation([tool], given, tool.name).service)


def fastmcp_sagas(
    *, keys: Keys | None = None, ttl: float = TTL, clock: Clock | None = None
) -> ServerExtension:
    """Return a FastMCP extension with the saga methods, for ``add_extension``.

    The methods can call every tool that the server lists. Anabranch tools run as sagas, also from a
    server that is mounted on this server; other tools run in one round.

    Args:
        keys: secrets of at least 32 bytes. The first seals new tokens; all open tokens. By default,
            the process makes a random key.
        ttl: seconds for which a token is valid.
        clock: the time; the system's by default.

    Raises:
        ImportError: if the extra ``fastmcp`` is not installed.
    """
    with needs_extra("fastmcp", "Serving tools with FastMCP"):
        from anabranch.mcp._fastmcp_tool import FastMcpSagas  # noqa: PLC0415 - an extra
    return FastMcpSagas(ServerOptions(keys=keys, ttl=ttl, clock=clock))


def install_fastmcp(
    server: FastMCP[Any],
    *tools: Tool[Any],
    options: ServerOptions | None = None,
    **keywords: Unpack[ServerKeywords],
) -> Installation:
    """Add ``tools`` to an existing FastMCP server, and the saga methods if it lacks them.

    Call this function before the server starts. The server seals the state of ``tools/call``
    (``FastMCP(request_state_security=)``). ``keys`` and ``ttl`` apply to the tokens of sagas, the
    handles of unfinished calls, and links to questions. With a store, the running server ends
    expired calls, also if another server mounts it. The server's ``on_duplicate`` decides about
    tools of the same name.

    Args:
        server: the server.
        tools: the tools to add.
        options: the options of the tools.
        keywords: fields of :class:`ServerOptions`, which replace those of ``options``.

    Raises:
        ImportError: if the extra ``fastmcp`` is not installed.
        ValueError: if a key is too short, or two of the tools have the same name.
        StoreError: if the store's URL is invalid.
        TypeError: if the server is of another kind; the message names the right function.
    """
    with needs_extra("fastmcp", "Serving tools with FastMCP"):
        from fastmcp import FastMCP  # noqa: PLC0415 - an extra

        from anabranch.mcp._fastmcp_tool import FastMcpSagas, FastMcpTool, Lifespan, has_sagas  # noqa: PLC0415 - an extra
    require_server(server, FastMCP)
    given = options_for("FastMCP(…)", options, keywords)
    installation = Installation(tools, given, server.name)
    if given.sagas and not has_sagas(server):
        server.add_extension(FastMcpSagas(given))
    server.add_provider(Lifespan(installation))
    for each in _hosted(installation):
        server.add_tool(FastMcpTool.of(each, installation.service))
    offer_routes(installation, server)
    return installation

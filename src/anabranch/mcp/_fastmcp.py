"""Our tools on a FastMCP server: one by one, or several that share a service.

FastMCP is an extra that takes a second to import, so the functions here import it when they are
called.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from typing_extensions import Unpack

from anabranch._aio import Clock
from anabranch.errors import needs_extra
from anabranch.mcp._defaults import TTL
from anabranch.mcp._installation import Installation, offer_routes, require_server
from anabranch.mcp._options import (
    Keys,
    ServerKeywords,
    ServerOptions,
    ToolKeywords,
    options_for,
)
from anabranch.tool import Tool, require_tools

if TYPE_CHECKING:
    from fastmcp import FastMCP
    from fastmcp.server.extensions import ServerExtension
    from fastmcp.tools.base import Tool as BaseTool


def as_fastmcp_tool(
    tool: Tool[Any], *, options: ServerOptions | None = None, **keywords: Unpack[ToolKeywords]
) -> BaseTool:
    """Return ``tool`` for FastMCP's ``add_tool``; it serves both eras.

    With a store, effects happen once however often clients repeat a request, and expired calls are
    ended from the first call on. ``continue_call`` needs :func:`install_fastmcp`.

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
    return FastMcpTool.of_tool(tool, Installation([tool], given, tool.name).service)


def fastmcp_sagas(
    *, keys: Keys | None = None, ttl: float = TTL, clock: Clock | None = None
) -> ServerExtension:
    """Return the saga methods for FastMCP's ``add_extension``.

    They call every tool that the server shows to the caller. Tools of this library are called as
    sagas, even if their server is mounted on this one; all others run in one round.

    Args:
        keys: secrets of at least 32 bytes that seal the tokens; the first seals, all can open.
            Without keys, this process makes one.
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
    """Add ``tools`` to a FastMCP server, and the saga methods unless it has them.

    The server seals the state of ``tools/call`` (``FastMCP(request_state_security=)``); ``keys``
    and ``ttl`` are for the tokens of sagas. With a store, expired calls are ended while the server
    runs, even if it is mounted on another. If the server already has a tool of a name, its
    ``on_duplicate`` applies. Call this before the server starts.

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

        from anabranch.mcp._fastmcp_tool import (  # noqa: PLC0415 - an extra
            FastMcpSagas,
            FastMcpTool,
            Lifespan,
            has_sagas,
        )
    require_server(server, FastMCP)
    given = options_for("FastMCP(…)", options, keywords)
    installation = Installation(tools, given, server.name)
    if given.sagas and not has_sagas(server):
        server.add_extension(FastMcpSagas(given))
    server.add_provider(Lifespan(installation))
    for tool in tools:
        server.add_tool(FastMcpTool.of_tool(tool, installation.service))
    for more in installation.continue_tools:
        server.add_tool(FastMcpTool.of(more, more.serve))
    offer_routes(installation, server)
    return installation

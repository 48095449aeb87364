"""A FastMCP server of a target, as the commands serve it. FastMCP is imported by the target, not here.

It is served as its author has made it: its own tools, its authorization, the keys that seal its states.
Tools of ours that the target has beside it are added. What it lacks is not added behind its back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from anabranch._terminal.exits import UsageError
from anabranch.cli._targets import Found
from anabranch.errors import StoreError
from anabranch.mcp import ServerOptions, install_fastmcp

if TYPE_CHECKING:
    from fastmcp import FastMCP

ITS_OWN = (
    "The tools of a FastMCP server are run by FastMCP: --store, --model and limits have no effect on"
    " them, and a question that they ask over MCP 2026-07-28 fails there."
)


def assemble_fastmcp(found: Found, options: ServerOptions) -> FastMCP[Any]:
    """Return the FastMCP server of the targets, with their tools.

    Raises:
        UsageError: there are other servers, too; two tools have the same name; or the store's URL is
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
    """Return what to say of options for a FastMCP server that has no tools of ours; else nothing."""
    return ITS_OWN if found.fastmcp and not found.tools else ""


def fastmcp_app(
    server: FastMCP[Any], security: TransportSecuritySettings, session_ttl: float | None
) -> ASGIApp:
    """Return the application that serves it over HTTP, at ``/mcp``, guarded as the SDK's are."""
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

"""The client's log in the handshake era: how much of it the client wants.

Owns ``logging/setLevel`` and, with it, the ``logging`` capability, which revisions up to 2025-11-25
demand of every server that sends log messages; clients do not ask for a level without it. Since
2026-07-28 each request brings its own level, which the SDK observes. Sending is ``request.py``'s.
"""

from __future__ import annotations

from typing import Any, Final, get_args

import mcp_types as types
from mcp.server import ServerRequestContext
from mcp.server.mcpserver import MCPServer
from mcp.server.session import ServerSession

from anabranch.messages import LogLevel

__all__ = ["at_least", "is_wanted", "offer_log_level"]

METHOD: Final = "logging/setLevel"
LEVELS: Final[tuple[LogLevel, ...]] = get_args(LogLevel)
"""Least severe first, as the type lists them."""
LEAST: Final = "anabranch/logLevel"
"""Where a connection keeps the least level that its client wants."""


def offer_log_level(server: MCPServer[Any]) -> None:
    """Let clients of ``server`` choose a level, unless the server sees to that itself."""
    # MCPServer has no face for this method; the SDK's documentation refers to the server inside.
    inner = server._lowlevel_server  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    if inner.get_request_handler(METHOD) is None:
        inner.add_request_handler(METHOD, types.SetLevelRequestParams, _set_level)


async def _set_level(
    context: ServerRequestContext[Any, Any], params: types.SetLevelRequestParams
) -> types.EmptyResult:
    _connection_state(context.session)[LEAST] = params.level
    return types.EmptyResult()


def is_wanted(session: ServerSession, level: LogLevel) -> bool:
    """Whether the client of ``session`` wants messages of ``level``: all, until it has said so."""
    least: LogLevel = _connection_state(session).get(LEAST, LEVELS[0])
    return at_least(level, least)


def at_least(level: str, least: str) -> bool:
    """Whether ``level`` is as severe as ``least``, or more so."""
    return LEVELS.index(level) >= LEVELS.index(least)


def _connection_state(session: ServerSession) -> dict[str, Any]:
    """Return what is kept for the connection; a session is made for each request."""
    return session._connection.state  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]

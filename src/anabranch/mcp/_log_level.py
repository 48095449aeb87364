"""``logging/setLevel``: the least severe log messages that a client of the handshake era wants.

The method brings the ``logging`` capability, which revisions up to 2025-11-25 demand of every
server that sends log messages. Clients set no level without it. Since 2026-07-28 each request has a
level, which the SDK observes.
"""

from __future__ import annotations

from typing import Any, Final, get_args

import mcp_types as types
from mcp.server import ServerRequestContext
from mcp.server.mcpserver import MCPServer
from mcp.server.session import ServerSession

from anabranch.messages import LogLevel

METHOD: Final = "logging/setLevel"
LEVELS: Final[tuple[LogLevel, ...]] = get_args(LogLevel)
"""All levels, the least severe first."""
LEAST: Final = "anabranch/logLevel"
"""The key of the least wanted level in a connection's state."""


def offer_log_level(server: MCPServer[Any]) -> None:
    """Let clients of ``server`` choose a level, unless the server handles the method itself."""
    # MCPServer cannot add a method publicly; the SDK's documentation refers to the inner server.
    inner = server._lowlevel_server  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    if inner.get_request_handler(METHOD) is None:
        inner.add_request_handler(METHOD, types.SetLevelRequestParams, _set_level)


async def _set_level(
    context: ServerRequestContext[Any, Any], params: types.SetLevelRequestParams
) -> types.EmptyResult:
    _connection_state(context.session)[LEAST] = params.level
    return types.EmptyResult()


def is_wanted(session: ServerSession, level: LogLevel) -> bool:
    """Return whether the client of ``session`` wants messages of ``level``; by default, it wants all."""
    least: LogLevel = _connection_state(session).get(LEAST, LEVELS[0])
    return at_least(level, least)


def at_least(level: str, least: str) -> bool:
    """Return whether ``level`` is at least as severe as ``least``."""
    return LEVELS.index(level) >= LEVELS.index(least)


def _connection_state(session: ServerSession) -> dict[str, Any]:
    """Return the state of the connection, since a session lasts for one request only."""
    return session._connection.state  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]

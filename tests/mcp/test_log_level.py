"""The log level decides which of a tool's messages a client receives.

Source: MCP 2025-11-25, "Logging": servers that send log messages declare it, and clients may set
a least level. In 2026-07-28 the level is part of each request, and the method no longer exists.
"""

from collections.abc import Awaitable, Callable
from typing import Any, get_args

import mcp_types as types
import pytest
from mcp import Client, MCPDeprecationWarning, MCPError
from mcp.server import ServerRequestContext
from mcp.server.mcpserver import MCPServer

from anabranch import BranchContext, tool
from anabranch.mcp import install
from anabranch.messages import LogLevel
from tests.mcp.harness import HANDSHAKE, MODERN, Answers, connected, http, serving

LEVELS: list[LogLevel] = list(get_args(LogLevel))


@tool
async def chatter(ctx: BranchContext) -> None:
    for level in LEVELS:
        await ctx.log(level, level)


async def set_level(client: Client, level: LogLevel) -> types.EmptyResult:
    with pytest.warns(MCPDeprecationWarning):
        return await client.set_logging_level(level)


@pytest.mark.parametrize("mode", [HANDSHAKE, "auto"])
async def test_a_server_of_tools_that_log_declares_it(mode: str) -> None:
    """MCP: "Servers that emit log message notifications MUST declare the logging capability"."""
    async with connected(serving(chatter), mode, Answers()) as client:
        ours = client.server_capabilities
    assert ours.logging == types.LoggingCapability()


async def test_without_a_level_everything_is_sent() -> None:
    """The protocol lets the server decide."""
    answers = Answers()
    async with connected(serving(chatter), HANDSHAKE, answers) as client:
        await client.call_tool("chatter")
    assert [level for level, _ in answers.logs] == LEVELS


@pytest.mark.parametrize("least", LEVELS)
async def test_a_level_holds_for_the_calls_that_follow(least: LogLevel) -> None:
    answers = Answers()
    async with connected(serving(chatter), HANDSHAKE, answers) as client:
        assert await set_level(client, least) == types.EmptyResult()
        await client.call_tool("chatter")
        await client.call_tool("chatter")
    assert [level for level, _ in answers.logs] == LEVELS[LEVELS.index(least) :] * 2


async def test_the_last_level_counts() -> None:
    answers = Answers()
    async with connected(serving(chatter), HANDSHAKE, answers) as client:
        await set_level(client, "emergency")
        await set_level(client, "alert")
        await client.call_tool("chatter")
    assert [level for level, _ in answers.logs] == ["alert", "emergency"]


async def test_the_level_of_one_client_is_not_that_of_another() -> None:
    quiet, loud = Answers(), Answers()
    async with (
        http(serving(chatter)) as url,
        connected(url, HANDSHAKE, quiet) as one,
        connected(url, HANDSHAKE, loud) as other,
    ):
        await set_level(one, "emergency")
        await one.call_tool("chatter")
        await other.call_tool("chatter")
    assert [level for level, _ in quiet.logs] == ["emergency"]
    assert [level for level, _ in loud.logs] == LEVELS


async def test_the_method_is_gone_since_2026_07_28() -> None:
    async with connected(serving(chatter), MODERN, Answers()) as client:
        with pytest.raises(MCPError) as refused:
            await set_level(client, "info")
    assert refused.value.error.code == types.METHOD_NOT_FOUND


async def test_a_server_with_its_own_level_handler_keeps_the_handler() -> None:
    """``install`` adds a handler only where the server has none."""
    levels: list[str] = []
    server: MCPServer[Any] = MCPServer("existing", log_level="WARNING")
    server._lowlevel_server.add_request_handler(
        "logging/setLevel", types.SetLevelRequestParams, noting(levels)
    )
    install(server, chatter)
    answers = Answers()
    async with connected(server, HANDSHAKE, answers) as client:
        await set_level(client, "error")
        await client.call_tool("chatter")
    assert levels == ["error"]
    assert [level for level, _ in answers.logs] == LEVELS


def noting(levels: list[str]) -> Callable[..., Awaitable[types.EmptyResult]]:
    """A handler of the server's own, which records the levels that it receives."""

    async def handle(
        context: ServerRequestContext[Any, Any], params: types.SetLevelRequestParams
    ) -> types.EmptyResult:
        levels.append(params.level)
        return types.EmptyResult()

    return handle

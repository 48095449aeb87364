"""A FastMCP server in this process, and the SDK's client connected to it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from fastmcp import FastMCP
from fastmcp.tools.base import Tool as FastMcpBase
from mcp import Client
from mcp.server.mcpserver import RequestStateSecurity

from tests.mcp.harness import KEY, Answers, connected


def serving(*made: FastMcpBase, **options: Any) -> FastMCP[Any]:
    given: dict[str, Any] = {"request_state_security": RequestStateSecurity(keys=[KEY]), **options}
    server: FastMCP[Any] = FastMCP("test", **given)
    for each in made:
        server.add_tool(each)
    return server


def inside(server: FastMCP[Any]) -> Any:
    """Return the SDK server inside FastMCP's server, to which the SDK's client connects in process."""
    return server._mcp_server


@asynccontextmanager
async def called(server: FastMCP[Any], era: str, answers: Answers) -> AsyncGenerator[Client]:
    """Call a tool through the SDK's client in this process."""
    async with connected(inside(server), era, answers) as client:
        yield client

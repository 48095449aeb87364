"""The ways to serve tools: by a server of ours, of the SDK's, or of FastMCP's."""

from typing import Any

from fastmcp import FastMCP
from mcp.server.mcpserver import MCPServer

from anabranch.mcp import as_fastmcp_tool, create_server, install, install_fastmcp
from anabranch.tool import Tool
from tests.mcp.harness import KEY


def created(*tools: Tool[Any], **options: Any) -> Any:
    """A server that we make."""
    given: dict[str, Any] = {"keys": [KEY], **options}
    return create_server("created", tools, **given)


def installed(*tools: Tool[Any], **options: Any) -> Any:
    """A server of the SDK's that somebody else has made."""
    server: MCPServer[Any] = MCPServer("installed", log_level="WARNING")
    install(server, *tools, **options)
    return server


def on_fastmcp(*tools: Tool[Any], **options: Any) -> Any:
    """A server of FastMCP's that somebody else has made."""
    server: FastMCP[Any] = FastMCP("fastmcp")
    install_fastmcp(server, *tools, **options)
    return server._mcp_server


def single_on_fastmcp(made: Tool[Any], **options: Any) -> Any:
    """A server of FastMCP's with one tool that was added as any other."""
    server: FastMCP[Any] = FastMCP("single")
    server.add_tool(as_fastmcp_tool(made, **options))
    return server._mcp_server

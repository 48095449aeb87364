"""The ways to serve tools: by this package's server, the SDK's server, or FastMCP's server."""

from typing import Any

from fastmcp import FastMCP
from mcp.server.mcpserver import MCPServer

from anabranch.mcp import as_fastmcp_tool, create_server, install, install_fastmcp
from anabranch.tool import Tool
from tests.mcp.harness import KEY


def created(*tools: Tool[Any], **options: Any) -> Any:
    """Serve tools by a server that anabranch creates."""
    given: dict[str, Any] = {"keys": [KEY], **options}
    return create_server("created", tools, **given)


def installed(*tools: Tool[Any], **options: Any) -> Any:
    """Install tools on an existing server of the SDK."""
    server: MCPServer[Any] = MCPServer("installed", log_level="WARNING")
    install(server, *tools, **options)
    return server


def on_fastmcp(*tools: Tool[Any], **options: Any) -> Any:
    """Install tools on an existing FastMCP server."""
    server: FastMCP[Any] = FastMCP("fastmcp")
    install_fastmcp(server, *tools, **options)
    return server._mcp_server


def single_on_fastmcp(made: Tool[Any], **options: Any) -> Any:
    """Add one tool to an existing FastMCP server by FastMCP's own ``add_tool``."""
    server: FastMCP[Any] = FastMCP("single")
    server.add_tool(as_fastmcp_tool(made, **options))
    return server._mcp_server

"""Servers of one tool, by the SDK and by FastMCP, with the test's clock and ids."""

from collections.abc import Callable
from typing import Any

from fastmcp import FastMCP
from mcp.server.mcpserver import MCPServer

from anabranch import Sampler
from anabranch._durable import HANDLES, CallService
from anabranch.mcp import ServerOptions
from anabranch.mcp._fastmcp_tool import FastMcpTool
from anabranch.mcp._options import sealer_of
from anabranch.mcp._sdk_tool import SdkTool
from anabranch.mcp._service import Handles, Service
from anabranch.tool import Runtime, Tool

Host = Callable[[Tool[Any], Runtime, Sampler | None], Any]
"""Makes a server of one tool; the sampler is the server's model. No tool sends a heartbeat."""


def on_sdk(tool: Tool[Any], runtime: Runtime, sampler: Sampler | None) -> Any:
    served = SdkTool.of(tool, _service(tool, runtime, sampler))
    return MCPServer("laws", tools=[served], log_level="ERROR")


def on_fastmcp(tool: Tool[Any], runtime: Runtime, sampler: Sampler | None) -> Any:
    server: FastMCP[Any] = FastMCP("laws")
    server.add_tool(FastMcpTool.of(tool, _service(tool, runtime, sampler)))
    return server._mcp_server


def _service(tool: Tool[Any], runtime: Runtime, sampler: Sampler | None) -> Service:
    calls = CallService(runtime)
    options = ServerOptions()
    return Service(
        calls=calls,
        handles=Handles(calls, {tool.name: tool}, sealer_of(options, "test", HANDLES)),
        sampler=sampler,
        prefer_client=False,
        heartbeat=None,
        continues=False,
        asks_by_result=False,
        links=None,
        on_call=lambda: None,
        max_request=options.max_request,
    )

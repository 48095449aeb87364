"""Serve tools over the Model Context Protocol, and call them as sagas.

    server = create_server("travel", [book_flight], keys=[...])
    server.run("stdio")                            # an ordinary mcp MCPServer

    install(existing_server, book_flight)          # or add to one you have

    fastmcp.add_tool(as_fastmcp_tool(book_flight)) # or to a FastMCP server (extra ``fastmcp``)
    install_fastmcp(fastmcp, book_flight, keys=[...])

All of these serve clients of the handshake era and of the stateless era. Any ``mcp.Client`` calls the
tools. To call them as sagas:

    result = await SagaClient(client, answerer).call_tool("book_flight", {"destination": "Oslo"})
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch._durable.job import Durability
    from anabranch.mcp._fastmcp import as_fastmcp_tool, fastmcp_sagas, install_fastmcp
    from anabranch.mcp._installation import Installation
    from anabranch.mcp._options import (
        ServerKeywords,
        ServerOptions,
        ToolKeywords,
    )
    from anabranch.mcp._saga_client import SagaClient, SagaRoundsExceededError, Turn
    from anabranch.mcp._saga_shapes import CallToolSagaParams as CallToolSagaParams
    from anabranch.mcp._saga_shapes import ResumeToolSagaParams, SagaStepError, SagaStepResult
    from anabranch.mcp._saga_shapes import SagaError as SagaError
    from anabranch.mcp._saga_shapes import ToolCallSagaResult as ToolCallSagaResult
    from anabranch.mcp._server import create_server, install

__all__ = [
    "Durability",
    "Installation",
    "ResumeToolSagaParams",
    "SagaClient",
    "SagaRoundsExceededError",
    "SagaStepError",
    "SagaStepResult",
    "ServerKeywords",
    "ServerOptions",
    "ToolKeywords",
    "Turn",
    "as_fastmcp_tool",
    "create_server",
    "fastmcp_sagas",
    "install",
    "install_fastmcp",
]

_HOMES = {
    "anabranch._durable.job": ("Durability",),
    "anabranch.mcp._fastmcp": ("as_fastmcp_tool", "fastmcp_sagas", "install_fastmcp"),
    "anabranch.mcp._installation": ("Installation",),
    "anabranch.mcp._options": ("ServerKeywords", "ServerOptions", "ToolKeywords"),
    "anabranch.mcp._saga_client": ("SagaClient", "SagaRoundsExceededError", "Turn"),
    "anabranch.mcp._saga_shapes": (
        "CallToolSagaParams",
        "ResumeToolSagaParams",
        "SagaError",
        "SagaStepError",
        "SagaStepResult",
        "ToolCallSagaResult",
    ),
    "anabranch.mcp._server": ("create_server", "install"),
}
"""The modules that define the names."""


def __getattr__(name: str) -> object:
    """Load a name when it is first used: a client needs no server, and an option needs no SDK."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)

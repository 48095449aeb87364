"""An MCP application behind the HTTP server of the command line."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from mcp.server.mcpserver import MCPServer
from starlette.types import ASGIApp

from anabranch.cli._endpoint import CONCURRENCY, Endpoint, listen
from anabranch.cli._http_access import app_of
from anabranch.cli._http_server import Bounds, configure


def guarded(server: Any, *tokens: str) -> ASGIApp:
    """Return the application of ``anabranch serve --token``."""
    return app_of(server, Endpoint(token=",".join(tokens)))


def mcp_app() -> ASGIApp:
    server: MCPServer[Any] = MCPServer("s", log_level="ERROR")
    return guarded(server)


@asynccontextmanager
async def serving(app: ASGIApp, concurrency: int = CONCURRENCY) -> AsyncGenerator[tuple[str, int]]:
    with listen("127.0.0.1", 0) as listener:
        server = uvicorn.Server(configure(app, Bounds(concurrency)))
        task = asyncio.create_task(server.serve([listener]))
        try:
            yield listener.getsockname()
        finally:
            server.should_exit = True
            await task

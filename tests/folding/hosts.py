"""A host of another project that calls the folding tools over MCP."""

from typing import Any

from mcp import Client

ERAS = {"modern": "2026-07-28", "handshake": "legacy"}
TASK = {"description": "Find it", "prompt": "Look everywhere."}


class Host:
    """A host of another maker: each call on a connection of its own."""

    def __init__(self, server: Any, mode: Any) -> None:
        self._server = server
        self._mode = mode

    async def call(self, tool: str, **given: Any) -> Any:
        """Return the structured result."""
        async with Client(self._server, mode=self._mode) as client:
            result = await client.call_tool(tool, given)
        assert not result.is_error, result
        return result.structured_content

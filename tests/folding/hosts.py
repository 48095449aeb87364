"""A host of another project that calls the folding tools over MCP."""

from typing import Any

from mcp import Client
from mcp_types import CallToolResult

ERAS = {"modern": "2026-07-28", "handshake": "legacy"}
TASK: dict[str, Any] = {"description": "Find it", "prompt": "Look everywhere."}


class Host:
    """A host of another project, with a new connection for each call."""

    def __init__(self, server: Any, mode: Any) -> None:
        self._server = server
        self._mode = mode

    async def call(self, tool: str, **given: Any) -> Any:
        result = await self._result(tool, given)
        assert not result.is_error, result
        return result.structured_content

    async def refused(self, tool: str, **given: Any) -> str:
        result = await self._result(tool, given)
        assert result.is_error, result
        [block] = result.content
        assert block.type == "text"
        return block.text

    async def _result(self, tool: str, given: dict[str, Any]) -> CallToolResult:
        async with Client(self._server, mode=self._mode) as client:
            return await client.call_tool(tool, given)

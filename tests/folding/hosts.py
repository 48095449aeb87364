"""A host of another project that calls the folding tools over MCP."""

from typing import Any

from mcp import Client
from mcp_types import CallToolResult

from anabranch.folding import BranchService, folding_tools
from anabranch.mcp import create_server

ERAS = {"modern": "2026-07-28", "handshake": "legacy"}


class Host:
    """A host of another maker: each call on a connection of its own."""

    def __init__(self, branches: BranchService, mode: Any) -> None:
        self._branches = branches
        self._mode = mode

    async def result(self, tool: str, **given: Any) -> CallToolResult:
        server = create_server("folding", folding_tools(self._branches), keys=["k" * 32])
        async with Client(server, mode=self._mode) as client:
            return await client.call_tool(tool, given)

    async def call(self, tool: str, **given: Any) -> dict[str, Any]:
        result = await self.result(tool, **given)
        assert not result.is_error, result
        assert result.structured_content is not None
        content: dict[str, Any] = result.structured_content
        return content

    async def refusal(self, tool: str, **given: Any) -> str:
        result = await self.result(tool, **given)
        assert result.is_error, result
        return "".join(getattr(block, "text", "") for block in result.content)


TASK = {"description": "Find it", "prompt": "Look everywhere."}

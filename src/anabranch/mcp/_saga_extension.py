"""The saga methods as an extension of the SDK's ``MCPServer``."""

from __future__ import annotations

from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.extension import RequestHandler
from mcp.server.mcpserver import Extension, MCPServer, MethodBinding

from anabranch._sealing import Sealer
from anabranch.mcp._request import McpRequest
from anabranch.mcp._saga_params import CALL_SAGA, IDENTIFIER, RESUME_SAGA, LooseParams
from anabranch.mcp._sagas import SETTINGS, Offered, SagaMethods, tools_call_of
from anabranch.mcp._sdk_tool import SdkTool


class Sagas(Extension):
    """``tools/callSaga`` and ``tools/resumeSaga`` for the tools that ``server`` lists.

    Args:
        sealer: seals their tokens.
        server: has the tools.
    """

    identifier = IDENTIFIER

    def __init__(self, sealer: Sealer, server: MCPServer[Any]) -> None:
        self._server = server
        self._methods = SagaMethods(sealer, self._find)

    def settings(self) -> dict[str, Any]:
        """Return what the server advertises about them."""
        return dict(SETTINGS)

    def methods(self) -> list[MethodBinding]:
        """Return the methods, served in every era."""
        return [
            MethodBinding(CALL_SAGA, LooseParams, self._call),
            MethodBinding(RESUME_SAGA, LooseParams, self._resume),
        ]

    async def _find(self, name: str) -> Offered | RequestHandler | None:
        server = self._server
        # The SDK has no public way to a registered tool, nor to its own handlers.
        found = server._tool_manager.get_tool(name)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        if isinstance(found, SdkTool) and found.offered is not None:
            return found.offered
        if name not in {tool.name for tool in await server.list_tools()}:
            return None
        return tools_call_of(server._lowlevel_server)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]

    async def _call(
        self, context: ServerRequestContext[Any, Any], _: LooseParams
    ) -> dict[str, Any]:
        return await self._methods.call(McpRequest(context))

    async def _resume(
        self, context: ServerRequestContext[Any, Any], _: LooseParams
    ) -> dict[str, Any]:
        return await self._methods.resume(McpRequest(context))

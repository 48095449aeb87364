"""The saga methods as an extension of the SDK's ``MCPServer``."""

from __future__ import annotations

from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.mcpserver import Extension, MethodBinding

from anabranch.mcp._request import McpRequest
from anabranch.mcp._saga_params import CALL_SAGA, IDENTIFIER, RESUME_SAGA, LooseParams
from anabranch.mcp._sagas import SETTINGS, Offered, SagaMethods
from anabranch.mcp._sealing import Sealer

__all__ = ["Sagas"]


class Sagas(Extension):
    """``tools/callSaga`` and ``tools/resumeSaga`` for the tools that are offered.

    Args:
        sealer: seals their tokens.
    """

    identifier = IDENTIFIER

    def __init__(self, sealer: Sealer) -> None:
        self._offered: dict[str, Offered] = {}
        self._methods = SagaMethods(sealer, self._find)

    def offer(self, offered: Offered) -> None:
        """Let a tool be called."""
        self._offered[offered.tool.name] = offered

    def settings(self) -> dict[str, Any]:
        """Return what the server advertises about them."""
        return dict(SETTINGS)

    def methods(self) -> list[MethodBinding]:
        """Return the methods, served in every era."""
        return [
            MethodBinding(CALL_SAGA, LooseParams, self._call),
            MethodBinding(RESUME_SAGA, LooseParams, self._resume),
        ]

    async def _find(self, name: str) -> Offered | None:
        return self._offered.get(name)

    async def _call(
        self, context: ServerRequestContext[Any, Any], _: LooseParams
    ) -> dict[str, Any]:
        return await self._methods.call(McpRequest(context))

    async def _resume(
        self, context: ServerRequestContext[Any, Any], _: LooseParams
    ) -> dict[str, Any]:
        return await self._methods.resume(McpRequest(context))

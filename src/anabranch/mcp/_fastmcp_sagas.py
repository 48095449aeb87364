"""The saga methods as an extension of FastMCP. Needs the extra ``fastmcp``."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastmcp import Context, FastMCP
from fastmcp.server.extensions import MethodBinding, ServerExtension
from fastmcp.server.providers import Provider
from fastmcp.server.providers.fastmcp_provider import FastMCPProviderTool
from fastmcp.tools.base import Tool
from mcp.server.context import ServerRequestContext
from mcp.server.extension import RequestHandler

from anabranch.mcp._fastmcp_tool import FastMcpRequest, FastMcpTool
from anabranch.mcp._installation import Installation
from anabranch.mcp._options import ServerOptions, sealer_of
from anabranch.mcp._saga_shapes import CALL_SAGA, IDENTIFIER, RESUME_SAGA, LooseParams
from anabranch.mcp._sagas import SETTINGS, Offered, SagaMethods, tools_call_of


class Lifespan(Provider):
    """Runs ``installation`` while its server runs, also if that is mounted on another."""

    def __init__(self, installation: Installation) -> None:
        super().__init__()
        self._installation = installation

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        """Expire calls while the server runs, then end the running calls."""
        async with self._installation.running():
            yield


def has_sagas(server: FastMCP[Any]) -> bool:
    """Whether ``server`` has the saga methods."""
    # FastMCP has no public query for an extension.
    return IDENTIFIER in server._extensions  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


class FastMcpSagas(ServerExtension):
    """``tools/callSaga`` and ``tools/resumeSaga`` for the tools that a FastMCP server shows.

    The methods find a tool like ``tools/call``: by the name that its caller sees.

    Args:
        options: the options that seal the tokens.
    """

    identifier = IDENTIFIER

    def __init__(self, options: ServerOptions) -> None:
        self._options = options

    def settings(self) -> dict[str, Any]:
        """Return the settings that the server advertises for the saga methods."""
        return dict(SETTINGS)

    def methods(self) -> Sequence[MethodBinding]:
        """Return the methods, served in every era."""
        sagas = SagaMethods(sealer_of(self._options, self.server.name), self._find)

        async def call(context: ServerRequestContext[Any, Any], _: LooseParams) -> dict[str, Any]:
            return await sagas.call(FastMcpRequest(context, server=self.server))

        async def resume(context: ServerRequestContext[Any, Any], _: LooseParams) -> dict[str, Any]:
            return await sagas.resume(FastMcpRequest(context, server=self.server))

        return [
            MethodBinding(CALL_SAGA, LooseParams, call),
            MethodBinding(RESUME_SAGA, LooseParams, resume),
        ]

    async def _find(self, name: str) -> Offered | RequestHandler | None:
        found = await _tool_of(self.server, name)
        if found is None:
            return None
        if isinstance(found, FastMcpTool) and found.offered is not None:
            return found.offered
        return tools_call_of(self.server._mcp_server)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


async def _tool_of(server: FastMCP[Any], name: str) -> Tool | None:
    """Return the tool that ``server``, or a mounted server, shows under ``name``."""
    async with Context(server):  # a session's tools depend on the caller
        found = await server.get_tool(name)
    if isinstance(found, FastMCPProviderTool) and found._original_name:  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        return await _tool_of(found._server, found._original_name)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    return found

"""The saga methods as an extension of FastMCP. Needs the extra ``fastmcp``."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Self

from fastmcp import Context, FastMCP
from fastmcp.server.extensions import MethodBinding, ServerExtension
from mcp.server.context import ServerRequestContext

from anabranch.mcp._fastmcp_tool import FastMcpRequest, FastMcpTool
from anabranch.mcp._installation import Installation
from anabranch.mcp._options import ServerOptions, sealer_of
from anabranch.mcp._saga_params import CALL_SAGA, IDENTIFIER, RESUME_SAGA, LooseParams
from anabranch.mcp._sagas import SETTINGS, Offered, SagaMethods

__all__ = ["FastMcpSagas"]


class FastMcpSagas(ServerExtension):
    """``tools/callSaga`` and ``tools/resumeSaga`` for all of our tools that a FastMCP server has.

    A tool is found as a ``tools/call`` would find it: by the name under which its caller sees it.

    Args:
        options: seal the tokens.
    """

    identifier = IDENTIFIER

    def __init__(self, options: ServerOptions) -> None:
        self._options = options
        self._installations: list[Installation] = []

    @classmethod
    def on(cls, server: FastMCP[Any]) -> Self | None:
        """Return the one that ``server`` has."""
        # FastMCP has no public way to ask for an extension.
        known = server._extensions  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        extension = known.get(IDENTIFIER)
        return extension if isinstance(extension, cls) else None

    def run_along(self, installation: Installation) -> None:
        """Expire the calls of ``installation``, if it has a store, while the server runs."""
        self._installations.append(installation)

    def settings(self) -> dict[str, Any]:
        """Return what the server advertises about them."""
        return dict(SETTINGS)

    def methods(self) -> Sequence[MethodBinding]:
        """Return the methods, served in every era; none of them with ``sagas=False``."""
        if not self._options.sagas:
            return []
        sagas = SagaMethods(sealer_of(self._options, self.server.name), self._find)

        async def call(context: ServerRequestContext[Any, Any], _: LooseParams) -> dict[str, Any]:
            return await sagas.call(FastMcpRequest(context, server=self.server))

        async def resume(context: ServerRequestContext[Any, Any], _: LooseParams) -> dict[str, Any]:
            return await sagas.resume(FastMcpRequest(context, server=self.server))

        return [
            MethodBinding(CALL_SAGA, LooseParams, call),
            MethodBinding(RESUME_SAGA, LooseParams, resume),
        ]

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        """Expire calls for as long as the server runs."""
        async with AsyncExitStack() as stack:
            for installation in self._installations:
                await stack.enter_async_context(installation.running())
            yield

    async def _find(self, name: str) -> Offered | None:
        async with Context(self.server):  # what a session sees depends on who is asking
            found = await self.server.get_tool(name)
        return found.offered if isinstance(found, FastMcpTool) else None

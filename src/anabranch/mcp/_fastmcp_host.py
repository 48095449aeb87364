"""FastMCP as a host: a tool and an extension of FastMCP's own types, with ``serve`` behind them.

Owns what FastMCP is handed. Needs the extra ``fastmcp``, so ``fastmcp.py`` alone imports it, and
only when it is called. FastMCP lets a tool tell any error but one as a result; ``Refusal`` is the
way to the others. Where its context has no public face for what is needed, the comment says so.
"""

from __future__ import annotations

import inspect
import logging
import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from types import NoneType
from typing import Any, Self

import mcp_types as types
from fastmcp import Context, FastMCP
from fastmcp.exceptions import FastMCPError, ToolError
from fastmcp.server.context import (
    _log_level_session_key,  # pyright: ignore[reportPrivateUsage] - see FastMcpRequest.wants
)
from fastmcp.server.dependencies import get_context
from fastmcp.server.extensions import MethodBinding, ServerExtension
from fastmcp.tools.base import InputRequiredToolResult, ToolResult
from fastmcp.tools.base import Tool as BaseTool
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.types import InputRequiredResult
from pydantic import PrivateAttr

from anabranch._engine.clock import Clock
from anabranch.mcp._continue_call import CONTINUE
from anabranch.mcp._error_mapping import plain, told
from anabranch.mcp._installation import Installation, Keys
from anabranch.mcp._log_level import at_least
from anabranch.mcp._request import McpRequest
from anabranch.mcp._saga_params import CALL_SAGA, IDENTIFIER, RESUME_SAGA, LooseParams
from anabranch.mcp._saga_results import Results
from anabranch.mcp._sagas import SETTINGS, Offered, SagaMethods
from anabranch.mcp._sealing import Sealer
from anabranch.mcp._serving import Service, serve
from anabranch.messages import LogLevel
from anabranch.tool import Tool

__all__ = ["FastMcpSagas", "FastMcpTool"]

logger: logging.Logger = logging.getLogger("anabranch.mcp")


@dataclass(frozen=True, slots=True, kw_only=True)
class FastMcpRequest(McpRequest):
    """A request to a FastMCP server, which keeps the level of its clients' logs itself."""

    server: FastMCP[Any]

    def wants(self, level: LogLevel) -> bool:
        """Whether the client wants log messages of ``level``, as ``Context.log`` would decide."""
        # Context.log itself would do, but wraps the message, and raises the SDK's warning of
        # deprecation where it cannot be kept from the author's log.
        server, key = self.server, _log_level_session_key(self.session)
        levels = server._client_log_levels  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        least = levels.get(key, server.client_log_level)
        return least is None or at_least(level, least)


class Refusal(ToolResult):
    """A result that becomes a protocol error where FastMCP asks for what is to be sent.

    An ``MCPError`` that a tool raises would be told as a result, without its code and data.
    Middleware sees a result that is an error.
    """

    _error: MCPError = PrivateAttr()

    @classmethod
    def of(cls, error: MCPError) -> Self:
        """Return the refusal that becomes ``error``."""
        made = cls(content=[types.TextContent(type="text", text=str(error))], is_error=True)
        made._error = error
        return made

    def to_mcp_result(self) -> types.CallToolResult:
        """Raise the error."""
        raise self._error


class FastMcpResults(Results):
    """Makes results of the values of one tool, as FastMCP does."""

    def __init__(self, tool: Tool[Any], made: BaseTool) -> None:
        super().__init__(tool)
        self._made = made

    def _convert(self, value: object) -> types.CallToolResult:
        result = self._made.convert_result(value)
        return types.CallToolResult(
            content=result.content, structured_content=result.structured_content
        )


class FastMcpTool(BaseTool):
    """A tool of this library as FastMCP has them."""

    _tool: Tool[Any] = PrivateAttr()
    _service: Service = PrivateAttr()
    _results: Results = PrivateAttr()

    @classmethod
    def of(cls, tool: Tool[Any], service: Service) -> Self:
        """Return ``tool``, run by ``service``."""
        described = _described(tool)
        made = cls(
            name=tool.name,
            description=tool.description,
            parameters=tool.input_schema,
            output_schema=described.output_schema,
            return_type=described.return_type,
        )
        made._tool, made._service, made._results = tool, service, FastMcpResults(tool, made)
        return made

    @property
    def offered(self) -> Offered:
        """The tool behind, as the saga methods want it."""
        return Offered(self._tool, self._service, self._results)

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        """Serve the request that is under way.

        Raises:
            ToolError: an error that the caller is told of. All others are masked.
        """
        tool = self._tool
        try:
            request = _request(tool)
            with told(tool, request, ToolError):
                outcome = await serve(tool, tool.validate(arguments), request, self._service)
            if isinstance(outcome, InputRequiredResult):
                return InputRequiredToolResult(outcome)
            return self.convert_result(plain(tool, outcome, ToolError))
        except MCPError as error:
            return Refusal.of(error)
        except FastMCPError:
            raise
        except Exception as error:
            # FastMCP would show it to the caller, unless the server was told to mask errors.
            logger.exception("tool %r raised an unexpected exception", tool.name)
            raise ToolError(f"Error calling tool {self.name!r}") from error


def _described(tool: Tool[Any]) -> BaseTool:
    """Return what FastMCP makes of a function that returns what ``tool`` returns."""

    async def returning() -> None: ...

    returning.__annotations__ = {}
    if tool.returns is not inspect.Signature.empty:
        # FastMCP knows a function that returns nothing by the annotation None, not by its type.
        nothing = tool.returns is NoneType
        returning.__annotations__ = {"return": None if nothing else tool.returns}
    return BaseTool.from_function(returning, name=tool.name)


def _request(tool: Tool[Any]) -> FastMcpRequest:
    try:
        context = get_context()
        active = context.request_context
    except RuntimeError:
        active = context = None
    if context is None or active is None:
        raise ToolError(
            f"Tool {tool.name!r} talks to the client that calls it, and nobody does: call it"
            " through a client of the server, for example fastmcp.Client(server)."
        )
    # FastMCP's "escape hatch to the underlying SDK request context"; there is no other way to it.
    below = active._srctx  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    return FastMcpRequest(
        below, context.request_state, context.input_responses, server=context.fastmcp
    )


class FastMcpSagas(ServerExtension):
    """``tools/callSaga`` and ``tools/resumeSaga`` for all of our tools that a FastMCP server has.

    A tool is found as a ``tools/call`` would find it: by the name under which this caller sees it.

    Args:
        keys: seal the tokens; at least 32 bytes each. Without any, one is made for this process.
        ttl: seconds that a token is good for.
        clock: time.
    """

    identifier = IDENTIFIER

    def __init__(self, keys: Keys | None, ttl: float, clock: Clock) -> None:
        self._keys: Keys = keys or [secrets.token_bytes(32)]
        self._ttl = ttl
        self._clock = clock
        self._installations: list[Installation] = []

    @classmethod
    def on(cls, server: FastMCP[Any]) -> Self | None:
        """Return the one that ``server`` has."""
        # FastMCP has no public way to ask for an extension.
        known = server._extensions  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        extension = known.get(IDENTIFIER)
        return extension if isinstance(extension, cls) else None

    def sweep(self, installation: Installation) -> None:
        """Sweep the store of ``installation``, if it has one, while the server runs."""
        self._installations.append(installation)

    def settings(self) -> dict[str, Any]:
        """Return what the server advertises about them."""
        return dict(SETTINGS)

    def methods(self) -> Sequence[MethodBinding]:
        """Return the methods, served in every era."""
        sealer = Sealer(self._keys, audience=self.server.name, ttl=self._ttl, clock=self._clock)
        sagas = SagaMethods(sealer, self._find)

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
        """Sweep the stores for as long as the server runs."""
        async with AsyncExitStack() as stack:
            for installation in self._installations:
                await stack.enter_async_context(installation.running())
            yield

    async def _find(self, name: str) -> Offered | None:
        async with Context(self.server):  # what a session sees depends on who is asking
            found = await self.server.get_tool(name)
        if not isinstance(found, FastMcpTool) or found.offered.tool is CONTINUE:
            return None
        return found.offered

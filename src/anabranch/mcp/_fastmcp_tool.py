"""Our tools as tools of FastMCP, and the saga methods as its extension. Needs the extra ``fastmcp``."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import mcp_types as types
from fastmcp import Context, FastMCP
from fastmcp.exceptions import FastMCPError, ToolError
from fastmcp.server.context import _log_level_session_key  # pyright: ignore[reportPrivateUsage] - see FastMcpRequest.wants
from fastmcp.server.dependencies import get_context
from fastmcp.server.extensions import MethodBinding, ServerExtension
from fastmcp.server.providers import Provider
from fastmcp.server.providers.fastmcp_provider import FastMCPProviderTool
from fastmcp.tools.base import InputRequiredToolResult, ToolResult
from fastmcp.tools.base import Tool as BaseTool
from mcp import MCPError
from mcp.server.extension import RequestHandler
from mcp.types import InputRequiredResult
from pydantic import PrivateAttr

from anabranch.mcp._continue_tools import ContinueTool
from anabranch.mcp._error_mapping import CallFailedError
from anabranch.mcp._installation import Installation
from anabranch.mcp._options import ServerOptions, sealer_of
from anabranch.mcp._request import McpRequest, at_least
from anabranch.mcp._result_values import converter_to, function_returning, with_files
from anabranch.mcp._saga_shapes import IDENTIFIER
from anabranch.mcp._sagas import SETTINGS, Offered, SagaMethods, tools_call_of
from anabranch.mcp._sdk_tool import HostTool, fields_of
from anabranch.mcp._service import Service
from anabranch.mcp._unfinished import Unfinished
from anabranch.messages import LogLevel
from anabranch.tool import Tool


@dataclass(frozen=True, slots=True, kw_only=True)
class FastMcpRequest(McpRequest):
    """A request to a FastMCP server, which stores the log level of its clients itself."""

    server: FastMCP[Any]

    def wants(self, level: LogLevel) -> bool:
        # Context.log would decide this, but it wraps the message, and raises the SDK's deprecation
        # warning in a place where nothing can suppress it.
        server, key = self.server, _log_level_session_key(self.session)
        levels = server._client_log_levels  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        least = levels.get(key, server.client_log_level)
        return least is None or at_least(level, least)


class Refusal(ToolResult):
    """A result that becomes a protocol error when FastMCP converts it to send it.

    FastMCP reports an ``MCPError`` that a tool raises as a result, without its code and data.
    Middleware still sees a result with ``is_error``.
    """

    _error: MCPError = PrivateAttr()

    @classmethod
    def of(cls, error: MCPError) -> Self:
        made = cls(content=[types.TextContent(type="text", text=str(error))], is_error=True)
        made._error = error
        return made

    def to_mcp_result(self) -> types.CallToolResult:
        raise self._error


class FastMcpTool(HostTool, BaseTool):
    _convert: Callable[[object], object] = PrivateAttr()

    @classmethod
    def of(cls, ours: Tool[Any] | ContinueTool, service: Service) -> Self:
        returning = BaseTool.from_function(function_returning(ours.returns), name=ours.name)
        made = cls(**fields_of(ours, service), return_type=returning.return_type)
        made._ours, made._service = ours, service
        made.output_schema = made._listed(returning.output_schema)
        made._convert = converter_to(ours.returns)
        return made

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        try:
            return await self._served(arguments)
        except MCPError as error:
            return Refusal.of(error)
        except CallFailedError as failure:
            # FastMCP shows the text of any other error, unless the server masks errors.
            failure.log(self._ours.name)
            text = failure.text or failure.masked(f"Error calling tool {self.name!r}")
            raise ToolError(text) from failure.__cause__

    async def _served(self, arguments: dict[str, Any]) -> ToolResult:
        request = _request(self._ours.name)
        done = await self._answer(arguments, request, self._result, FastMCPError)
        if isinstance(done, InputRequiredResult):
            return InputRequiredToolResult(done)
        if isinstance(done, Unfinished):
            return ToolResult(content=done.text, structured_content=done.structured)
        return done

    def _result(self, value: object) -> ToolResult:
        return self.convert_result(self._convert(with_files(value)))

    def _converted(self, value: object) -> types.CallToolResult:
        result = self._result(value)
        return types.CallToolResult(
            content=result.content,
            structured_content=result.structured_content,
            is_error=result.is_error,
        )


def _request(tool: str) -> FastMcpRequest:
    try:
        context = get_context()
        active = context.request_context
    except RuntimeError:
        active = context = None
    if context is None or active is None:
        raise ToolError(
            f"Tool {tool!r} asks the client that calls it, and there is none: call it"
            " through a client of the server, for example fastmcp.Client(server)."
        )
    # FastMCP's "escape hatch to the underlying SDK request context" is the only access to it.
    below = active._srctx  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    return FastMcpRequest(
        below, context.request_state, context.input_responses, server=context.fastmcp
    )


class Lifespan(Provider):
    """Runs ``installation`` while its server runs, alone or mounted on another FastMCP server."""

    def __init__(self, installation: Installation) -> None:
        super().__init__()
        self._installation = installation

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        async with self._installation.running():
            yield


def has_sagas(server: FastMCP[Any]) -> bool:
    # FastMCP has no public query for an extension.
    return IDENTIFIER in server._extensions  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


class FastMcpSagas(ServerExtension):
    """The saga methods for the tools that a FastMCP server shows, by the names that callers see."""

    identifier = IDENTIFIER

    def __init__(self, options: ServerOptions) -> None:
        self._options = options

    def settings(self) -> dict[str, Any]:
        return dict(SETTINGS)

    def methods(self) -> Sequence[MethodBinding]:
        sagas = SagaMethods(sealer_of(self._options, self.server.name), self._find)

        return sagas.bindings(MethodBinding, partial(FastMcpRequest, server=self.server))

    async def _find(self, name: str) -> Offered | RequestHandler | None:
        found = await _tool_of(self.server, name)
        if found is None:
            return None
        if isinstance(found, FastMcpTool) and found.offered is not None:
            return found.offered
        return tools_call_of(self.server._mcp_server)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


async def _tool_of(server: FastMCP[Any], name: str) -> BaseTool | None:
    """Return the tool that ``server``, or a mounted server, shows under ``name``."""
    async with Context(server):  # a session's tools depend on the caller
        found = await server.get_tool(name)
    if isinstance(found, FastMCPProviderTool) and found._original_name:  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        return await _tool_of(found._server, found._original_name)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    return found

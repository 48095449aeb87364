"""Our tools as tools of the SDK's ``MCPServer``, and the saga methods for its tools."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Protocol, Self, TypeAlias

from mcp.server.extension import RequestHandler
from mcp.server.mcpserver import Context, Extension, MCPServer, MethodBinding
from mcp.server.mcpserver.exceptions import (
    InvalidSignature,
    ResourceError,
    ToolError,
    UnexpectedResourceError,
    UnexpectedToolError,
)
from mcp.server.mcpserver.tools import Tool as BaseTool
from mcp.shared.inbound import find_invalid_x_mcp_header
from mcp.types import CallToolResult, InputRequiredResult, TextContent
from pydantic import PrivateAttr

from anabranch._sealing import Sealer
from anabranch._text import encodable
from anabranch.mcp._error_mapping import (
    REQUEST_STATE,
    CallFailedError,
    checked_results,
    mapped_errors,
)
from anabranch.mcp._protocol import to_annotations
from anabranch.mcp._request import McpRequest
from anabranch.mcp._result_values import (
    function_returning,
    list_as_one,
    with_files,
    wrapped_for_sdk,
)
from anabranch.mcp._saga_shapes import IDENTIFIER
from anabranch.mcp._sagas import SETTINGS, Offered, SagaMethods, tools_call_of
from anabranch.mcp._service import Service
from anabranch.mcp._serving import serve
from anabranch.mcp._unfinished import Unfinished, with_unfinished
from anabranch.tool import Tool, ToolAnnotations

Serve: TypeAlias = Callable[[Mapping[str, Any], McpRequest], Awaitable[object]]
"""Serves one request with validated arguments."""


class Described(Protocol):
    """The description of a tool for a host, and the method that checks the tool's arguments."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def input_schema(self) -> dict[str, Any]: ...
    @property
    def returns(self) -> Any: ...  # noqa: ANN401 - any annotation
    @property
    def title(self) -> str | None: ...
    @property
    def annotations(self) -> ToolAnnotations | None: ...

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]: ...


class SdkTool(BaseTool):
    _described: Described = PrivateAttr()
    _serve: Serve = PrivateAttr()
    _offered: Offered | None = PrivateAttr(None)

    @classmethod
    def of(cls, described: Described, serves: Serve, meta: dict[str, Any] | None = None) -> Self:
        if (reason := find_invalid_x_mcp_header(described.input_schema)) is not None:
            raise InvalidSignature(f"Tool {described.name!r} has an invalid x-mcp-header: {reason}")
        returning = BaseTool.from_function(
            function_returning(wrapped_for_sdk(described.returns)), name=described.name
        )
        made = cls(
            fn=returning.fn,  # never called
            name=described.name,
            title=encodable(described.title),
            description=encodable(described.description),
            parameters=encodable(described.input_schema),
            fn_metadata=returning.fn_metadata,
            is_async=True,
            context_kwarg=None,
            annotations=to_annotations(described.annotations),
            meta=meta,
        )
        made._described, made._serve = described, serves
        return made

    @classmethod
    def of_tool(cls, tool: Tool[Any], service: Service) -> Self:
        made = cls.of(tool, partial(serve, tool, service), service.tool_meta)
        made._offered = Offered(tool, service, made._converted)  # noqa: SLF001 - its own class
        listed = made.fn_metadata
        if service.leaves_unfinished and tool.returns is str and listed.output_schema is not None:
            varied = {"output_schema": with_unfinished(listed.output_schema)}
            made.fn_metadata = listed.model_copy(update=varied)
        return made

    @property
    def offered(self) -> Offered | None:
        """The tool as the saga methods call it; ``None`` if they call it through ``tools/call``."""
        return self._offered

    async def run(
        self,
        arguments: dict[str, Any],
        context: Context[Any, Any],
        convert_result: bool = False,  # noqa: FBT001, FBT002 - the SDK's signature
    ) -> Any:  # noqa: ANN401 - the SDK's
        prefix = f"Error executing tool {self.name}"
        try:
            return await self._served(arguments, context, convert_result=convert_result)
        except CallFailedError as failure:
            if failure.text is None:
                raise UnexpectedToolError(failure.masked(prefix)) from failure.__cause__
            raise ToolError(f"{prefix}: {failure.text}") from failure.__cause__
        except (UnexpectedToolError, UnexpectedResourceError) as error:
            raise UnexpectedToolError(f"{prefix}: {error}") from error
        except (ToolError, ResourceError) as error:
            raise ToolError(f"{prefix}: {error}") from error

    async def _served(
        self, arguments: dict[str, Any], context: Context[Any, Any], *, convert_result: bool
    ) -> object:
        try:
            request = McpRequest(
                context.request_context, context.request_state, context.input_responses
            )
        except ValueError as error:  # no request: the server's author has called the tool
            raise CallFailedError(None) from error
        with mapped_errors(
            is_modern=request.is_modern,
            token=REQUEST_STATE if request.is_modern else None,
            unmapped=(ToolError, ResourceError),
        ):
            value = await self._serve(self._described.validate(arguments), request)
            if isinstance(value, Unfinished):
                text = TextContent(type="text", text=value.text)
                return CallToolResult(content=[text], structured_content=value.structured)
            if not convert_result or isinstance(value, InputRequiredResult):
                return value
            with checked_results():
                return self._converted(value)

    def _converted(self, value: object) -> CallToolResult | InputRequiredResult:
        result: CallToolResult | InputRequiredResult = self.fn_metadata.convert_result(
            list_as_one(with_files(value))
        )
        return result


class Sagas(Extension):
    """``tools/callSaga`` and ``tools/resumeSaga`` for the tools that ``server`` lists."""

    identifier = IDENTIFIER

    def __init__(self, sealer: Sealer, server: MCPServer[Any]) -> None:
        self._server = server
        self._methods = SagaMethods(sealer, self._find)

    def settings(self) -> dict[str, Any]:
        return dict(SETTINGS)

    def methods(self) -> list[MethodBinding]:
        return self._methods.bindings(MethodBinding, McpRequest)

    async def _find(self, name: str) -> Offered | RequestHandler | None:
        server = self._server
        # The SDK has no public access to a registered tool, nor to its handlers.
        found = server._tool_manager.get_tool(name)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        if isinstance(found, SdkTool) and found.offered is not None:
            return found.offered
        if name not in {tool.name for tool in await server.list_tools()}:
            return None
        return tools_call_of(server._lowlevel_server)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]

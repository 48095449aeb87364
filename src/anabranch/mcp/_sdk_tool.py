"""Our tools as tools of the SDK's ``MCPServer``, and the saga methods for its tools."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Self, TypeVar

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
from pydantic import BaseModel, PrivateAttr

from anabranch._durable import Sealer
from anabranch._text import encodable
from anabranch.errors import masked
from anabranch.mcp._continue_tools import ContinueTool
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
    unchanged,
    with_files,
    wrapped_for_sdk,
)
from anabranch.mcp._saga_shapes import IDENTIFIER
from anabranch.mcp._sagas import SETTINGS, Offered, SagaMethods, tools_call_of
from anabranch.mcp._service import Service
from anabranch.mcp._serving import serve
from anabranch.mcp._unfinished import Unfinished, with_unfinished
from anabranch.tool import Tool

T = TypeVar("T")


def fields_of(ours: Tool[Any] | ContinueTool, service: Service) -> dict[str, Any]:
    """Return the fields that the tools of all hosts have."""
    return {
        "name": ours.name,
        "title": encodable(ours.title),
        "description": encodable(ours.description),
        "parameters": encodable(ours.input_schema),
        "annotations": to_annotations(ours.annotations),
        "meta": service.tool_meta if isinstance(ours, Tool) else None,
    }


class HostTool(BaseModel, ABC):
    """The shared part of our tools on each host: a tool, or a tool that continues calls."""

    _ours: Tool[Any] | ContinueTool = PrivateAttr()
    _service: Service = PrivateAttr()

    def _listed(self, schema: dict[str, Any] | None) -> dict[str, Any] | None:
        """Return the output schema that the host lists, with the variant for an unfinished call."""
        varies = isinstance(self._ours, Tool) and self._service.leaves_unfinished
        if schema is None or not varies or self._ours.returns is not str:
            return schema
        return with_unfinished(schema)

    @property
    def offered(self) -> Offered | None:
        """The tool as the saga methods call it; ``None`` if they call it through ``tools/call``."""
        ours = self._ours
        return Offered(ours, self._service, self._converted) if isinstance(ours, Tool) else None

    @abstractmethod
    def _converted(self, value: object) -> BaseModel:
        """Return a tool's ``value`` as the result that the host sends."""

    async def _answer(
        self,
        arguments: dict[str, Any],
        request: McpRequest,
        convert: Callable[[object], T],
        *unmapped: type[Exception],
    ) -> T | InputRequiredResult | Unfinished:
        """Serve a request, and ``convert`` a tool's value; the host's errors are ``unmapped``."""
        with mapped_errors(
            is_modern=request.is_modern,
            token=REQUEST_STATE if request.is_modern else None,
            unmapped=unmapped,
        ):
            ours, given = self._ours, self._ours.validate(arguments)
            if isinstance(ours, Tool):
                value = await serve(ours, self._service, given, request)
            else:
                value = await ours.serve(given, request)
            if isinstance(value, InputRequiredResult | Unfinished):
                return value
            with checked_results():
                return convert(value)


class SdkTool(HostTool, BaseTool):
    @classmethod
    def of(cls, ours: Tool[Any] | ContinueTool, service: Service) -> Self:
        if (reason := find_invalid_x_mcp_header(ours.input_schema)) is not None:
            raise InvalidSignature(f"Tool {ours.name!r} has an invalid x-mcp-header: {reason}")
        returning = BaseTool.from_function(
            function_returning(wrapped_for_sdk(ours.returns)), name=ours.name
        )
        made = cls(
            **fields_of(ours, service),
            fn=returning.fn,  # never called
            fn_metadata=returning.fn_metadata,
            is_async=True,
            context_kwarg=None,
        )
        made._ours, made._service = ours, service
        listed = {"output_schema": made._listed(returning.fn_metadata.output_schema)}
        made.fn_metadata = returning.fn_metadata.model_copy(update=listed)
        return made

    async def run(
        self,
        arguments: dict[str, Any],
        context: Context[Any, Any],
        convert_result: bool = False,  # noqa: FBT001, FBT002 - the SDK's signature
    ) -> Any:  # noqa: ANN401 - the SDK's
        prefix = f"Error executing tool {self.name}"
        try:
            request = McpRequest(
                context.request_context, context.request_state, context.input_responses
            )
        except ValueError as error:  # no request: the server's author has called the tool
            raise UnexpectedToolError(masked(prefix, error)) from error
        convert = self._converted if convert_result else unchanged
        try:
            done = await self._answer(arguments, request, convert, ToolError, ResourceError)
        except CallFailedError as failure:
            if failure.text is None:
                raise UnexpectedToolError(failure.masked(prefix)) from failure.__cause__
            raise ToolError(f"{prefix}: {failure.text}") from failure.__cause__
        except (UnexpectedToolError, UnexpectedResourceError) as error:
            raise UnexpectedToolError(f"{prefix}: {error}") from error
        except (ToolError, ResourceError) as error:
            raise ToolError(f"{prefix}: {error}") from error
        if isinstance(done, Unfinished):
            text = TextContent(type="text", text=done.text)
            return CallToolResult(content=[text], structured_content=done.structured)
        return done

    def _converted(self, value: object) -> CallToolResult | InputRequiredResult:
        result: CallToolResult | InputRequiredResult = self.fn_metadata.convert_result(
            list_as_one(with_files(value))
        )
        return result


class Sagas(Extension):
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

"""A tool's value as the result of a saga: what ``tools/call`` would return, field for field.

Owns the translation where no host does it by itself. A text is the one exception: its result
has the text alone, as in the sagas' proposal, and not the same text again as structured content.
"""

from __future__ import annotations

import inspect
from functools import cached_property
from typing import Any

from mcp.server.mcpserver.utilities.func_metadata import FuncMetadata, func_metadata
from mcp.types import CallToolResult
from pydantic import BaseModel

from anabranch.tool import Tool

__all__ = ["Results", "to_failure"]


class Results:
    """Makes results of the values of one tool, as the SDK does; another host has its own way."""

    def __init__(self, tool: Tool[Any]) -> None:
        self._tool = tool

    def to_result(self, value: object) -> dict[str, Any]:
        """Return the result for ``value``.

        Raises:
            Exception: it is not what the tool's return annotation promises, or cannot be JSON.
        """
        converted = self._convert(value)
        result = converted.model_dump(
            mode="json", by_alias=True, exclude_none=True, exclude={"result_type"}
        )
        if isinstance(converted, CallToolResult) and not converted.is_error:
            del result["isError"]
        if isinstance(value, str):
            result.pop("structuredContent", None)
        return result

    def _convert(self, value: object) -> BaseModel:
        return self._shape.convert_result(value)

    @cached_property
    def _shape(self) -> FuncMetadata:
        """The SDK's view of what the tool returns; made when it first returns something."""

        def returned() -> None:
            """Looked at for its signature, and never called."""

        returned.__name__ = self._tool.name
        signature = inspect.Signature(return_annotation=self._tool.returns)
        returned.__signature__ = signature  # type: ignore[attr-defined]
        return func_metadata(returned)


def to_failure(message: str) -> dict[str, Any]:
    """Return the result that tells the model of an error."""
    return {"content": [{"type": "text", "text": message}], "isError": True}

"""A tool's value as the result of a saga: what ``tools/call`` would return, field for field.

A text is the one exception: its result has the text alone, as in the sagas' proposal, and not the
same text again as structured content.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from mcp.types import CallToolResult
from pydantic import BaseModel

from anabranch._text import encodable
from anabranch.mcp._error_mapping import checked_results

Convert: TypeAlias = Callable[[object], BaseModel]
"""Makes the result of a host of a tool's value."""


def to_result(value: object, convert: Convert) -> dict[str, Any]:
    """Return the result for ``value``.

    Raises:
        Exception: it is not what the tool's return annotation promises, or cannot be JSON.
    """
    with checked_results():
        result = to_wire(convert(encodable(value)))
    if isinstance(value, str):
        result.pop("structuredContent", None)
    return result


def to_wire(converted: BaseModel) -> dict[str, Any]:
    """Return the fields of a host's result."""
    result = converted.model_dump(
        mode="json", by_alias=True, exclude_none=True, exclude={"result_type"}
    )
    if isinstance(converted, CallToolResult) and not converted.is_error:
        del result["isError"]
    return result


def to_failure(message: str) -> dict[str, Any]:
    """Return the result that reports an error to the model."""
    return {"content": [{"type": "text", "text": message}], "isError": True}

"""A tool's value as the result of a saga: an MCP ``CallToolResult`` with nothing in it but that.

Owns this one translation. For ``tools/call`` the server's SDK has its own.
"""

from __future__ import annotations

from typing import Any

from pydantic_core import to_json, to_jsonable_python

__all__ = ["to_failure", "to_result"]


def to_result(value: object) -> dict[str, Any]:
    """Return the result for ``value``: a text as it is, anything else as JSON.

    What is an object in JSON is structured content, too.
    """
    if isinstance(value, str):
        return _text(value)
    if value is None:
        return {"content": []}
    plain = to_jsonable_python(value, by_alias=True)
    result = _text(to_json(plain, indent=2).decode())
    return {**result, "structuredContent": plain} if isinstance(plain, dict) else result


def to_failure(message: str) -> dict[str, Any]:
    """Return the result that tells the model of an error."""
    return {**_text(message), "isError": True}


def _text(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}

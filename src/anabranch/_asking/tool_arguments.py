"""Reads the arguments of a model's tool call: an object, or a text that is not an object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from pydantic_core import from_json

from anabranch.messages import ToolUseBlock

_SHOWN = 500


def tool_use(use_id: str, name: str, arguments: str | Mapping[str, Any] | None) -> ToolUseBlock:
    """Return the call with ``arguments`` as its input, or as ``malformed`` if they are not an object.

    An absent value and ``null`` mean no arguments. An object inside a JSON text is read.
    """
    if isinstance(arguments, Mapping):
        return ToolUseBlock(id=use_id, name=name, input=dict(arguments))
    read = _object_in(arguments or "")
    if read is None:
        return ToolUseBlock(id=use_id, name=name, input={}, malformed=arguments)
    return ToolUseBlock(id=use_id, name=name, input=read)


def refusal(use: str, malformed: str) -> str:
    """Return the answer to a call of the tool ``use`` with ``malformed`` arguments, which did not run."""
    shown = malformed if len(malformed) <= _SHOWN else f"{malformed[:_SHOWN]}…"
    return (
        f"{use} was not run: its arguments must be one JSON object, and these are not: {shown}"
        f"\nCall {use} again with one object. For several calls, use the tool several times."
    )


def _object_in(text: str) -> dict[str, Any] | None:
    value: object = text
    for _ in range(2):  # an object, or one that was encoded twice
        if isinstance(value, str):
            try:
                value = from_json(value) if value.strip() else None
            except ValueError:
                return None
    if value is None:
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None

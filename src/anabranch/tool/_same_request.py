"""Compares the arguments of two requests for one call, which different versions of a tool read."""

from __future__ import annotations

from typing import Any

from pydantic_core import to_json

from anabranch._text import read_json
from anabranch.errors import InvalidArgumentsError
from anabranch.tool._tools import Tool


def without_defaults(tool: Tool[Any], written: str) -> str:
    """Return the arguments of ``tool`` in the JSON ``written``, except those that equal their default.

    So a parameter that a deployment adds, with a default, leaves the arguments of open calls equal.
    """
    given: dict[str, Any] = read_json(written)
    required = {*tool.input_schema.get("required", ())}
    if not tool.parameters or given.keys() <= required:
        return written
    try:
        least = tool.validate({name: given[name] for name in given.keys() & required})
    except InvalidArgumentsError:  # an alias is the name in the schema
        return written
    defaults: dict[str, Any] = read_json(tool.to_json(least))
    kept = {
        name: value
        for name, value in given.items()
        if name in required or name not in defaults or defaults[name] != value
    }
    return to_json(kept).decode()

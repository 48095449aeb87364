"""Arguments over MCP: the author's parameters as the SDK wants them, the check as it is everywhere.

Owns the bridge between the two. The SDK makes a tool's input schema from parameters, and would
also check arguments by them; but what it says then is not what the other edges say, echoes the
caller's values, and leaves out arguments that the tool does not know. So it is handed parameters
that have the author's schemas and accept anything, and ``Tool.validate`` has the only word.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from anabranch.errors import InvalidArgumentsError
from anabranch.tool import Tool

__all__ = ["MISSING", "open_parameters", "validate"]

MISSING: Final = object()
"""Stands where the caller has not given a required argument."""


def open_parameters(tool: Tool[Any]) -> Iterator[inspect.Parameter]:
    """Yield the parameters of ``tool`` with their schemas, but open to every value."""
    for parameter in tool.parameters:
        annotation: Any = parameter.annotation
        required = parameter.default is inspect.Parameter.empty
        yield parameter.replace(annotation=Annotated[annotation, _Open(required=required)])


class _Open:
    """Annotation: takes the value as it is given, or none; the JSON Schema stays the type's."""

    def __init__(self, *, required: bool) -> None:
        self._required = required

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        as_given = core_schema.no_info_wrap_validator_function(_as_given, handler(source))
        if not self._required:
            return as_given
        # A default lets the check pass without a value. The chain around it keeps the field
        # required in the JSON Schema, since pydantic looks there at the outermost schema alone.
        optional = core_schema.with_default_schema(as_given, default_factory=lambda: MISSING)
        return core_schema.chain_schema([optional])


def _as_given(value: object, _: object) -> object:
    return value


def validate(
    tool: Tool[Any], given: Mapping[str, Any], parsed: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments as the body wants them.

    ``parsed`` has the values in which the SDK has replaced JSON in a text by what it says; some
    clients send lists and objects that way. It is used only where ``given`` itself does not fit.

    Raises:
        InvalidArgumentsError: naming every argument that is wrong, missing or unknown.
    """
    try:
        return tool.validate(given)
    except InvalidArgumentsError:
        lenient = {name: parsed.get(name, value) for name, value in given.items()}
        if lenient == given:
            raise
        try:
            return tool.validate(lenient)
        except InvalidArgumentsError:
            pass
        raise

"""Refuses arguments of the wrong kind, for callers without a type checker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from anabranch.tool._tools import Tool
from anabranch.tool._wrong_kind import wrong_kind

T = TypeVar("T")

_A_TOOL = "an async function decorated with @tool, or an instance of a HandoffTool"


def has_methods(given: object, *names: str) -> bool:
    return not isinstance(given, type) and all(
        callable(getattr(given, name, None)) for name in names
    )


def require_tool(where: str, given: object) -> None:
    if not isinstance(given, Tool):
        raise wrong_kind(where, f"a tool, {_A_TOOL}", given)


def require_list(where: str, wanted: str, given: Iterable[T]) -> tuple[T, ...]:
    """Return the items of ``given``, an argument of ``where``, which may be an iterator."""
    if isinstance(given, Tool) or not isinstance(given, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance] - for callers without types
        raise wrong_kind(where, wanted, given)
    return tuple(given)


def require_tools(where: str, given: Iterable[T], *others: type) -> tuple[T, ...]:
    """Return the items of ``given``, an argument of ``where``: tools, or instances of ``others``."""
    tools = require_list(where, "a list of tools", given)
    for each in tools:
        if not isinstance(each, (Tool, *others)):
            raise wrong_kind(where, f"tools, each {_A_TOOL}", each)
    return tools

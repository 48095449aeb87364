"""Refuses arguments of the wrong kind, in one sentence that names the given value.

These checks help callers without a type checker.
"""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Iterable
from typing import TypeVar

from anabranch.tool._tools import Tool

T = TypeVar("T")

_A_TOOL = "an async function decorated with @tool, or an instance of a HandoffTool"

_SHOWN = (str, int, float, bool, list, tuple, set, dict, type(None))


def wrong_kind(where: str, wanted: str, given: object) -> TypeError:
    """Return the error for a wrong kind of value: ``where`` takes ``wanted``, got ``given``."""
    return TypeError(f"{where} takes {wanted}; it was given {_in_words(given)}.")


def has_methods(given: object, *names: str) -> bool:
    """Return whether ``given`` is an object, and no class, that has all these methods."""
    return not isinstance(given, type) and all(
        callable(getattr(given, name, None)) for name in names
    )


def require_tool(where: str, given: object) -> None:
    """Raise a ``TypeError`` unless ``given``, an argument of ``where``, is a tool."""
    if not isinstance(given, Tool):
        raise wrong_kind(where, f"a tool, {_A_TOOL}", given)


def require_tools(where: str, given: Iterable[T], *others: type) -> tuple[T, ...]:
    """Return the items of ``given``, an argument of ``where``: tools, or instances of ``others``.

    ``given`` may be an iterator, which is read once.

    Raises:
        TypeError: if ``given`` is not a list, or an item is something else.
    """
    if isinstance(given, Tool) or not isinstance(given, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance] - for callers without types
        raise wrong_kind(where, "a list of tools", given)
    tools = tuple(given)
    for each in tools:
        if not isinstance(each, (Tool, *others)):
            raise wrong_kind(where, f"tools, each {_A_TOOL}", each)
    return tools


def _in_words(given: object) -> str:
    if inspect.isclass(given):
        return f"the class {given.__qualname__}"
    if inspect.isroutine(given):
        return f"the function {given.__name__!r}"
    if isinstance(given, str):
        return f"the text {reprlib.repr(given)}"
    kind: type[object] = type(given)
    if kind in _SHOWN:
        return (
            reprlib.repr(given) if given is None else f"the {kind.__name__} {reprlib.repr(given)}"
        )
    return f"an object of type {kind.__qualname__}"

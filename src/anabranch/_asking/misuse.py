"""Words the errors for wrong uses of ``ctx``, and for arguments of the wrong kind.

They are for authors without a type checker, or of another library.
"""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from pydantic import PydanticUserError

OF_OTHERS: Final[Mapping[str, str]] = {
    "create_message": "ctx.sample(prompt)",
    "report_progress": "ctx.notify(message, progress, total)",
    "request_id": "ctx.call_id",
    **{
        level: f'ctx.log("{level}", message)'
        for level in ("debug", "info", "notice", "warning", "error", "critical")
    },
}
"""Methods of the contexts of the MCP SDK and FastMCP, and the same of ours."""

_SHOWN = (str, int, float, bool, list, tuple, set, dict, type(None))


def require_text(method: str, name: str, given: object) -> None:
    if not isinstance(given, str):
        raise TypeError(f"{method} takes a text as {name}, got {given!r}.")


def require_seconds(method: str, given: object) -> None:
    if not isinstance(given, int | float):
        raise TypeError(f"{method} takes a number of seconds, got {type(given).__name__}.")


def require_operations(method: str, operations: tuple[object, ...]) -> None:
    for each in operations:
        if not inspect.isawaitable(each):
            raise TypeError(
                f"{method} takes operations, got {type(each).__name__}."
                f" Write {method}(*operations)."
            )


def require_awaitable(made: object) -> None:
    """Check that the function of a branch returned an awaitable."""
    if not inspect.isawaitable(made):
        raise TypeError(
            f"ctx.branch takes an async function, got a function that returned"
            f" {type(made).__name__}. Write `async def`, or use ctx.step."
        )


def require_runnable(given: Any) -> None:  # noqa: ANN401 - anything that an author gives
    if not hasattr(given, "validate"):
        name = f"the function {given.__name__!r}" if inspect.isroutine(given) else repr(given)
        raise TypeError(
            f"ctx.call_tool takes a tool, got {name}. Decorate the function with @tool, or open a"
            " branch with ctx.branch."
        )


def refuse_attribute(name: str) -> NoReturn:
    remedy = f". Write {OF_OTHERS[name]}." if name in OF_OTHERS else ""
    raise AttributeError(f"'BranchContext' object has no attribute {name!r}{remedy}", name=name)


def refuse_as_argument() -> NoReturn:
    raise PydanticUserError(
        "An MCP host reads ctx as an argument, and no caller gives a BranchContext. Decorate the"
        " function with anabranch's @tool alone, then write install(server, function), or"
        " server.add_tool(as_fastmcp_tool(function)).",
        code=None,
    )


def has_methods(given: object, *names: str) -> bool:
    return not isinstance(given, type) and all(
        callable(getattr(given, name, None)) for name in names
    )


def wrong_kind(where: str, wanted: str, given: object) -> TypeError:
    """Return the error for a wrong kind of value: ``where`` takes ``wanted``, got ``given``.

    A class that is often given by mistake names the remedy in its attribute ``__instead__``.
    """
    remedy = getattr(type(given), "__instead__", "")
    return TypeError(f"{where} takes {wanted}; it was given {_in_words(given)}.{remedy}")


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

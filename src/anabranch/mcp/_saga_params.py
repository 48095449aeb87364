"""The parameters of the saga methods, checked field by field.

The message of every error begins with the name of the field that is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, TypeVar, cast

import mcp_types as types
from mcp import MCPError
from pydantic import BaseModel, ConfigDict, ValidationError

__all__ = [
    "CALL_SAGA",
    "IDENTIFIER",
    "RESUME_SAGA",
    "LooseParams",
    "invalid",
    "quoted",
    "read",
]

CALL_SAGA: Final = "tools/callSaga"
RESUME_SAGA: Final = "tools/resumeSaga"
IDENTIFIER: Final = "io.github.anabranch/sagas"
"""The name under which a server advertises the two methods."""

DEEPEST: Final = 64
"""Levels of objects and lists in a field; real forms, replies and arguments have far fewer."""
LARGEST: Final = 4 * 1024 * 1024
"""Characters in a field: the SDK's own limit over HTTP. Over stdio there is no other."""
LONGEST_NUMBER: Final = 4096
"""Bits of an integer; Python refuses to write much longer ones in decimal."""
QUOTED: Final = 80
"""Characters of a text that an error message shows."""

S = TypeVar("S", bound=BaseModel)


class LooseParams(types.RequestParams):
    """Accepts anything: the SDK would refuse a bad parameter without naming it."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="allow")


def read(shape: type[S], params: Mapping[str, Any] | None) -> S:
    """Return ``params`` as ``shape``.

    Raises:
        MCPError: a field is missing, of another type, too large, or nested too deeply.
    """
    known = {field.alias for field in shape.model_fields.values()}
    given = {name: value for name, value in (params or {}).items() if name in known}
    for name, value in given.items():
        _require_bounds(name, value)
    try:
        return shape.model_validate(given)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        raise invalid(_where(problem["loc"]), problem["msg"]) from error


def invalid(field: str, problem: str) -> MCPError:
    """Return the error for a field: the message begins with its name."""
    return MCPError(types.INVALID_PARAMS, f"{field}: {problem}", {"field": field})


def quoted(text: str) -> str:
    """Return ``text`` for an error message, shortened if it is long."""
    return repr(text if len(text) <= QUOTED else f"{text[:QUOTED]}...")


def _require_bounds(field: str, value: object) -> None:
    """Refuse a value that would fail later. Iterative, since it guards against recursion."""
    open_values: list[tuple[object, int]] = [(value, 1)]
    characters = 0
    while open_values:
        found, depth = open_values.pop()
        inner: list[object] = []
        if isinstance(found, dict):
            fields = cast("dict[object, object]", found)
            inner = [*fields.keys(), *fields.values()]
        elif isinstance(found, list):
            inner = cast("list[object]", found)
        elif isinstance(found, int) and found.bit_length() > LONGEST_NUMBER:
            raise invalid(field, "it has a number that is too long")
        characters += len(found) if isinstance(found, str) else 2
        if characters > LARGEST:
            raise invalid(field, f"it has more than {LARGEST} characters")
        if inner and depth > DEEPEST:
            raise invalid(field, f"it is nested in more than {DEEPEST} levels")
        open_values.extend((each, depth + 1) for each in inner)


def _where(location: tuple[int | str, ...]) -> str:
    """Return the path of a problem: ``completedSteps[0].stepId``."""
    named = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return named.removeprefix(".") or "params"

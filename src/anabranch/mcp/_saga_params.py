"""The parameters of the saga methods, checked field by field.

The message of every error begins with the name of the field that is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import chain, compress, count
from operator import is_
from typing import Any, ClassVar, Final, TypeVar

import mcp_types as types
from mcp import MCPError
from pydantic import BaseModel, ConfigDict, ValidationError

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
LONGEST: Final = 2**LONGEST_NUMBER
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
    """Refuse a value that would fail later.

    Level by level, since it guards against recursion, and in C, since a level may have millions of
    parts: a loop over them in Python would hold up every other call for seconds.
    """
    level: list[Any] = [value]
    characters = 0
    for depth in count(1):
        kinds = {*map(type, level)}
        texts, numbers = _of(str, level, kinds), _of(int, level, kinds)
        characters += sum(map(len, texts)) + 2 * (len(level) - len(texts))
        if characters > LARGEST:
            raise invalid(field, f"it has more than {LARGEST} characters")
        if numbers and (max(numbers) >= LONGEST or min(numbers) <= -LONGEST):
            raise invalid(field, "it has a number that is too long")
        objects = _of(dict, level, kinds)
        values = map(dict[str, Any].values, objects)
        level = [*chain.from_iterable(chain(objects, values, _of(list, level, kinds)))]
        if not level:
            return
        if depth > DEEPEST:
            raise invalid(field, f"it is nested in more than {DEEPEST} levels")


def _of(kind: type, level: list[Any], kinds: set[type]) -> list[Any]:
    """Return the values of ``level`` that are of ``kind``; ``kinds`` are all there are."""
    if kind not in kinds:
        return []
    if len(kinds) == 1:
        return level
    return [*compress(level, map(partial(is_, kind), map(type, level)))]


def _where(location: tuple[int | str, ...]) -> str:
    """Return the path of a problem: ``completedSteps[0].stepId``."""
    named = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return named.removeprefix(".") or "params"

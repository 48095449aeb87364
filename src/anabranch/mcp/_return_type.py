"""A tool's returned values as an SDK reads them: the annotation, and long lists."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Coroutine
from itertools import chain
from types import NoneType
from typing import Any, Final, cast

MOST_TEXTS: Final = 1_000
"""Values of a list that the SDK makes a text each of; of more, they are one text."""
DEEPEST: Final = 64
DATA: Final = {int, float, str, bool, NoneType, dict}
LISTS: Final = {list, tuple}


def function_returning(annotation: object) -> Callable[[], Coroutine[Any, Any, None]]:
    """Return a function with that return annotation, for SDKs to make an output schema of.

    ``inspect.Signature.empty`` stands for no annotation. The function is never called.
    """

    async def returning() -> None: ...

    # Type hints spell the annotation None as its type, which FastMCP would not recognize.
    named = {} if annotation is inspect.Signature.empty else {"return": annotation}
    returning.__annotations__ = {"return": None} if annotation is NoneType else named
    return returning


def list_as_one(value: object) -> object:
    """Return ``value``; a long list of data as a sequence of which the SDK makes a single text.

    For each value in a list, and in the lists in it, the SDK makes a content block of its own: of a
    million of them in half a minute, in which nothing else is served.
    """
    level, values = [value], 0
    for _ in range(DEEPEST):
        kinds = {*map(type, level)}
        if not kinds <= DATA | LISTS:
            break  # a picture, perhaps
        if not kinds & LISTS:
            return deque(cast("list[object]", value)) if values > MOST_TEXTS else value
        level = [*chain.from_iterable(cast("Any", each) for each in level if type(each) in LISTS)]
        values += len(level)
    return value

"""A tool's return annotation as an SDK reads it: on a function that takes nothing."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from types import NoneType
from typing import Any

__all__ = ["function_returning"]


def function_returning(annotation: object) -> Callable[[], Coroutine[Any, Any, None]]:
    """Return a function with that return annotation, for SDKs to make an output schema of.

    ``inspect.Signature.empty`` stands for no annotation. The function is never called.
    """

    async def returning() -> None: ...

    # Type hints spell the annotation None as its type, which FastMCP would not recognize.
    named = {} if annotation is inspect.Signature.empty else {"return": annotation}
    returning.__annotations__ = {"return": None} if annotation is NoneType else named
    return returning

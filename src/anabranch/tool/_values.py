"""Checks that a tool's value fits its annotation, and is JSON or a file that a result can hold."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any, NoReturn, cast

from pydantic import PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from anabranch._elicitation import describe
from anabranch._text import DEEPEST, encodable, number_problem, require_shallow
from anabranch.errors import ToolError

logger: logging.Logger = logging.getLogger("anabranch")

FILE_METHODS = ("to_image_content", "to_audio_content", "to_resource_content")
"""The methods of the SDK's and FastMCP's helpers that make a file of the helper."""

_SCALARS = {str, bool, int, type(None)}


class ReturnValue:
    """The value of a tool whose body has this return ``annotation``."""

    def __init__(self, annotation: Any) -> None:  # noqa: ANN401 - any annotation of an author
        self._annotation = annotation

    def check(self, value: object) -> None:
        if problem := self._misfit(value) or _unwritable(value):
            raise ToolError(f"The tool's return value {problem}.")

    def _misfit(self, value: object) -> str | None:
        if self._adapter is None:
            return None
        try:
            self._adapter.validate_python(value)
        except ValidationError:
            try:
                self._adapter.validate_python(encodable(value))  # as edges write the value
            except ValidationError as error:
                return f"does not fit its output schema: {describe(error, 'result')}"
        return None

    @cached_property
    def _adapter(self) -> TypeAdapter[Any] | None:
        if self._annotation is inspect.Signature.empty:
            return None
        try:
            return TypeAdapter(self._annotation)
        except PydanticUserError:  # a class without a schema, such as a helper for images
            return None


class _NoDataError(Exception):
    """A value contains an object that is neither JSON data nor a file."""


class _UnreadableFileError(Exception):
    """A value contains a helper whose file cannot be read."""


def _unwritable(value: object) -> str | None:
    """Return the reason why ``value`` cannot be JSON or a file; ``None`` if it can."""
    if type(value) in _SCALARS and number_problem(value) is None:
        return None
    try:
        _refuse_iterators(value)
        read = encodable(value)  # as edges write the value
        written = to_jsonable_python(read, by_alias=True, bytes_mode="base64", fallback=_file)
        require_shallow(written)
    except _NoDataError as found:
        advice = "Return plain data, a pydantic model or a dataclass"
        return f"cannot be JSON: it holds an object of type {found}. {advice}"
    except _UnreadableFileError as found:
        return f"holds a file that cannot be read ({found})"
    except (PydanticSerializationError, RecursionError, ValueError):
        return "is nested too deeply, refers to itself, or is not JSON"
    problem = number_problem(written)
    return None if problem is None else f"cannot be JSON: {problem}"


def _refuse_iterators(value: object) -> None:
    """Refuse generators and other iterators: the check would empty them."""
    level: list[Any] = [value]
    for _ in range(DEEPEST):
        for each in level:
            if isinstance(each, Iterator):
                _refuse(cast("object", each))
        nested: list[Any] = [each for each in level if isinstance(each, dict | list | tuple)]
        level = [inner for each in nested for inner in _inside(each)]
        if not level:
            return


def _inside(value: Any) -> Iterable[Any]:  # noqa: ANN401 - a container of anything
    inside: Iterable[Any] = cast("Any", value).values() if isinstance(value, dict) else value
    return inside


def _file(value: object) -> None:
    """Accept a helper that becomes a file of the result."""
    convert = next(filter(callable, (getattr(value, name, None) for name in FILE_METHODS)), None)
    if convert is None:
        _refuse(value)
    try:
        convert()
    except Exception as error:
        logger.debug("a file of a tool's return value cannot be read", exc_info=error)
        raise _UnreadableFileError(type(error).__name__) from error


def _refuse(value: object) -> NoReturn:
    raise _NoDataError(type(value).__qualname__)

"""Checks that a tool's value fits its annotation, and is JSON or a file that a result can hold."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, partial
from typing import Any, cast

from pydantic import PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from anabranch._asking import describe
from anabranch._text import DEEPEST, encodable, number_problem, require_shallow
from anabranch.errors import ToolError

logger: logging.Logger = logging.getLogger("anabranch")

FILE_METHODS = ("to_image_content", "to_audio_content", "to_resource_content")
"""The methods of the SDK's and FastMCP's helpers that make a file of the helper."""

_DATA = "plain data, a pydantic model or a dataclass"
_SCALARS = {str, bool, int, type(None)}


class ReturnValue:
    def __init__(self, annotation: Any) -> None:  # noqa: ANN401 - any annotation of an author
        self._annotation = annotation

    def check(self, value: object) -> None:
        if problem := self._misfit(value) or _unwritable(value):
            raise ToolError(f"The tool's return value {problem}.")

    def _misfit(self, value: object) -> str | None:
        if self._adapter is None:
            return None
        if _is_result(value):
            return self._misfit_in(value)
        try:
            self._adapter.validate_python(value)
        except ValidationError:
            try:
                self._adapter.validate_python(encodable(value))  # as edges write the value
            except ValidationError as error:
                return f"does not fit its output schema: {describe(error, 'result')}"
        return None

    def _misfit_in(self, result: Any) -> str | None:  # noqa: ANN401 - of the SDK or FastMCP
        if result.is_error:
            return None
        content: object = result.structured_content
        if isinstance(content, dict):
            fields = cast("dict[str, object]", content)
            if [*fields] == ["result"]:  # as hosts wrap a value that is no object
                return self._misfit(fields["result"])
            return self._misfit(fields)
        return self._misfit(content)

    @cached_property
    def _adapter(self) -> TypeAdapter[Any] | None:
        if self._annotation is inspect.Signature.empty:
            return None
        try:
            return TypeAdapter(self._annotation)
        except PydanticUserError:  # a class without a schema, such as a helper for images
            return None


def _is_result(value: object) -> bool:
    """Return whether ``value`` is a whole result of the SDK or FastMCP, made by the tool."""
    return isinstance(getattr(value, "is_error", None), bool) and hasattr(
        value, "structured_content"
    )


class _NoDataError(Exception):
    """A value contains an object that is neither JSON data nor a file."""


class _UnreadableFileError(Exception):
    """A value contains a helper whose file cannot be read."""


def _unwritable(value: object) -> str | None:
    if type(value) in _SCALARS and number_problem(value) is None:
        return None
    try:
        _refuse_iterators(value)
        files = _readable_files(value)
        read = encodable(value)  # as edges write the value
        written = to_jsonable_python(
            read, by_alias=True, bytes_mode="base64", fallback=partial(_require_in, files)
        )
        require_shallow(written)
    except _NoDataError as found:
        return f"cannot be JSON: it holds an object of type {found}"
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


def _readable_files(value: object) -> set[int]:
    """Return the ids of the helpers that become files of the result: ``value``, or those in lists."""
    found: set[int] = set()
    level: list[Any] = [value]
    for _ in range(DEEPEST):
        helpers = {kind for kind in {*map(type, level)} if _converters(kind)}
        files = [each for each in level if type(each) in helpers] if helpers else []
        for each in files:
            _require_readable(each)
        found.update(map(id, files))
        nested: list[Any] = [each for each in level if isinstance(each, list | tuple)]
        level = [inner for each in nested for inner in each]
        if not level:
            break
    return found


def _converters(value: object) -> list[Callable[[], object]]:
    """Return the methods of a helper, or its class, that make a file; none for other objects."""
    return [*filter(callable, (getattr(value, name, None) for name in FILE_METHODS))]


def _require_readable(helper: object) -> None:
    try:
        _converters(helper)[0]()
    except Exception as error:
        logger.debug("a file of a tool's return value cannot be read", exc_info=error)
        raise _UnreadableFileError(type(error).__name__) from error


def _require_in(files: set[int], value: object) -> None:
    if id(value) in files:
        return
    advice = "a file alone or in a list" if _converters(value) else _DATA
    raise _NoDataError(f"{type(value).__qualname__}. Return {advice}")


def _refuse(value: object) -> None:
    raise _NoDataError(f"{type(value).__qualname__}. Return {_DATA}")

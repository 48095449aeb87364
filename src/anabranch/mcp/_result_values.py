"""Brings return values and annotations of tools into shapes that the SDK and FastMCP read alike."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from itertools import chain
from types import NoneType
from typing import Any, Final, NewType, cast, get_args, get_type_hints, is_typeddict

import mcp_types as types
from pydantic import BaseModel, PydanticUserError, TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError

from anabranch._engine import repeatable
from anabranch.tool import FILE_METHODS

DEEPEST: Final = 64


def function_returning(annotation: object) -> Callable[[], Coroutine[Any, Any, None]]:
    """Return a function with the return ``annotation``, from which hosts make an output schema."""

    async def returning() -> None: ...

    # Type hints replace the annotation None by its type, which FastMCP does not recognise.
    named = {"return": annotation} if _has_schema(annotation) else {}
    returning.__annotations__ = {"return": None} if annotation is NoneType else named
    return returning


def _has_schema(annotation: object) -> bool:
    """Return whether a schema describes values of ``annotation``: no file, and nothing but data."""
    if annotation is inspect.Signature.empty or _has_helper(annotation):
        return False
    try:
        TypeAdapter(cast("Any", annotation))
    except PydanticSchemaGenerationError:
        return False
    except PydanticUserError:  # the SDK rebuilds such types, as the TypedDict of Python 3.11
        pass
    return True


def _has_helper(annotation: object) -> bool:
    inside = get_args(annotation)
    return _is_helper(cast("Any", annotation)) or any(map(_has_helper, inside))


def wrapped_for_sdk(annotation: Any) -> Any:  # noqa: ANN401 - any annotation
    """Return ``annotation``, renamed if its values are no objects and the SDK would take them for such.

    Clients up to 2025-11-25 refuse the whole list of tools if the schema of one is none of an object.
    """
    if not inspect.isclass(annotation) or is_typeddict(annotation):
        return annotation
    kind: type[Any] = annotation
    if not (issubclass(kind, BaseModel) or get_type_hints(kind)):
        return kind
    try:
        schema = TypeAdapter(kind).json_schema(mode="serialization")
    except PydanticUserError:
        return kind
    root = schema.get("$ref", "").removeprefix("#/$defs/")
    if schema.get("$defs", {}).get(root, schema).get("type") == "object":
        return kind
    return cast("Any", NewType)(kind.__name__, kind)


def converter_to(annotation: object) -> Callable[[object], object]:
    """Return a function that converts a value to ``annotation``, as the SDK does and FastMCP does not."""
    if not _has_schema(annotation):
        return unchanged
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(cast("Any", annotation))
    except PydanticUserError:
        return unchanged
    reader = repeatable(adapter.core_schema, adapter.validator)

    def convert(value: object) -> object:
        try:
            return reader.validate_python(value)
        except ValidationError:
            return value

    return convert


def unchanged(value: object) -> object:
    return value


def with_files(value: object) -> object:
    """Return ``value`` with a content block for each helper for files, also of the other host."""
    level: list[Any] = [value]
    for _ in range(DEEPEST):
        if any(map(_is_helper, {*map(type, level)})):
            return _converted(value)
        level = _inner(level)
        if not level:
            return value
    return value


def _converted(value: object) -> object:
    for name in FILE_METHODS:
        if callable(convert := getattr(value, name, None)):
            return convert()
    if isinstance(value, list | tuple):
        return [_converted(each) for each in cast("Iterable[object]", value)]
    return value


def list_as_one(value: object) -> object:
    """Return ``value``; a list of data becomes a sequence of which the SDK makes a single JSON text.

    A million content blocks take half a minute, and clients could not read a nested list back.
    """
    level: list[Any] = [value]
    for _ in range(DEEPEST):
        if any(map(_is_file, {*map(type, level)})):
            return value
        level = _inner(level)
        if not level:
            is_list = isinstance(value, list | tuple)
            return deque(cast("Iterable[object]", value)) if is_list else value
    return value


def _inner(level: list[Any]) -> list[Any]:
    lists: list[Iterable[Any]] = [each for each in level if isinstance(each, list | tuple)]
    return [*chain.from_iterable(lists)]


def _is_file(kind: type[object]) -> bool:
    """Return whether values of ``kind`` are content blocks, or are converted to content blocks."""
    return issubclass(kind, get_args(types.ContentBlock)) or _is_helper(kind)


def _is_helper(kind: type[object]) -> bool:
    return any(hasattr(kind, name) for name in FILE_METHODS)

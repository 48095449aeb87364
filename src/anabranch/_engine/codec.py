"""Codecs: how values become the JSON of journal entries, and come back.

A value can be recorded if it round-trips through its function's return annotation (pydantic), or is
plain JSON. Every value takes the round trip, also in the round that made it, so that a tool sees
the same thing in its first run and in each replay.
"""

from __future__ import annotations

import functools
import inspect
import json
import math
import sys
from collections.abc import Callable
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any, cast, get_type_hints
from weakref import WeakKeyDictionary

from pydantic import JsonValue, PydanticUserError, TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError
from pydantic_core import PydanticSerializationError

from anabranch.errors import SerializationError

__all__ = ["PLAIN", "Codec", "codec_of", "reference_to", "resolve"]

_SCALARS = (str, int, float, bool, type(None))
_ATOMS = frozenset(_SCALARS)
_TOO_LONG = 10**sys.int_info.default_max_str_digits


class Codec:
    """Writes and reads the values of one function.

    ``adapter`` is the pydantic view of the return annotation; without one, values must be plain
    JSON. ``exact`` is the annotation, where values of just that type are plain JSON themselves.
    """

    __slots__ = ("_adapter", "_exact", "_read")

    def __init__(self, adapter: TypeAdapter[Any] | None, exact: type[Any] | None = None) -> None:
        self._adapter = adapter
        self._exact = exact
        # The adapter's own method would look at each of its options again for every value. Fields
        # are written and read by name: an alias may be meant for one of the two directions only.
        self._read = (
            None
            if adapter is None
            else functools.partial(adapter.validator.validate_python, by_alias=False, by_name=True)
        )

    def encode(self, step_id: str, value: object) -> JsonValue:
        """Return the JSON of ``value``; shares nothing mutable with it.

        Raises:
            SerializationError: naming ``step_id`` and the type that cannot cross.
        """
        if self._adapter is not None and type(value) is not self._exact:
            try:
                value = self._adapter.dump_python(
                    value, mode="json", by_alias=False, warnings="error"
                )
            except (PydanticSerializationError, ValueError, TypeError) as problem:
                raise SerializationError(
                    step_id, type(value).__name__, _first_line(problem)
                ) from problem
        return plain(step_id, value)

    def decode(self, step_id: str, value: JsonValue) -> Any:  # noqa: ANN401 - the type is the function's
        """Return the value that ``value`` is the JSON of: a new one each time.

        Raises:
            SerializationError: the annotation does not accept its own JSON.
        """
        if self._read is None or type(value) is self._exact:
            return value if type(value) in _ATOMS else copied(value)
        try:
            return self._read(value)
        except ValidationError:
            return self._read_strictly(step_id, value)

    def _read_strictly(self, step_id: str, value: JsonValue) -> Any:  # noqa: ANN401 - as decode
        """Read what a strict model accepts as JSON and not as Python's own types (a date)."""
        adapter = cast("TypeAdapter[Any]", self._adapter)
        try:
            return adapter.validate_json(json.dumps(value), by_alias=False, by_name=True)
        except ValidationError as problem:
            raise SerializationError(
                step_id, str(adapter), "its JSON does not fit its own annotation"
            ) from problem


PLAIN = Codec(None)


def plain(step_id: str, value: object) -> JsonValue:
    """Return a copy of ``value`` made of JSON's own types; tuples become lists.

    Raises:
        SerializationError: something in it is not JSON: another type, a key that is no text, a
            number that is not finite, or a nesting too deep to be written.
    """
    try:
        return _plain(step_id, value)
    except RecursionError:
        raise SerializationError(step_id, type(value).__name__, "it is nested too deep") from None


def copied(value: JsonValue) -> JsonValue:
    """Return a copy of what is known to be JSON."""
    if isinstance(value, dict):
        made: dict[str, JsonValue] = {}
        for key, item in value.items():  # no deeper on the stack than what wrote it (_plain)
            made[key] = copied(item)
        return made
    if isinstance(value, list):
        return [copied(item) for item in value]
    return value


def _plain(step_id: str, value: object) -> JsonValue:
    kind = type(value)
    if kind is float and not math.isfinite(cast("float", value)):
        raise SerializationError(step_id, "float", f"{value} is not a JSON number")
    if kind is int and not -_TOO_LONG < cast("int", value) < _TOO_LONG:
        raise SerializationError(step_id, "int", "Python does not read a number of so many digits")
    if kind in _SCALARS:
        return cast("JsonValue", value)
    if kind in (list, tuple):
        return [_plain(step_id, item) for item in cast("list[object]", value)]
    if kind is dict:
        made: dict[str, JsonValue] = {}
        for key, item in cast("dict[object, object]", value).items():
            if type(key) is not str:
                raise SerializationError(step_id, "dict", f"its key {key!r} is not a text")
            made[key] = _plain(step_id, item)
        return made
    raise SerializationError(step_id, kind.__name__)


def _first_line(problem: Exception) -> str:
    return str(problem).partition("\n")[0].rstrip(".:")


def codec_of(function: Callable[..., object]) -> Codec:
    """Return the codec for what ``function`` returns, by its annotation."""
    if type(function) is FunctionType and not function.__code__.co_flags & inspect.CO_NESTED:
        return _codec_of(function)  # nearly always
    inner = function if isinstance(function, FunctionType) else _innermost(function)
    if isinstance(inner, FunctionType) and "<locals>" in inner.__qualname__:
        return _codec_of_local(inner)
    return _codec_of(inner)


def _innermost(function: Callable[..., object]) -> Callable[..., object]:
    """The function behind partials, bound methods and callable objects: what can be cached."""
    while isinstance(function, functools.partial):
        function = cast("functools.partial[object]", function).func
    if not inspect.isroutine(function) and not inspect.isclass(function):
        function = type(function).__call__
    return cast("Callable[..., object]", getattr(function, "__func__", function))


@lru_cache(maxsize=4096)
def _codec_of(function: Callable[..., object]) -> Codec:
    try:
        if inspect.isclass(function):
            annotation: Any = function  # calling it makes one
        else:
            annotation = get_type_hints(function, include_extras=True).get("return", Any)
    except (NameError, TypeError, AttributeError):  # a forward reference that cannot be resolved
        annotation = Any
    if annotation in (Any, object):
        return PLAIN
    try:
        return Codec(TypeAdapter(annotation), annotation if annotation in _SCALARS else None)
    except (PydanticSchemaGenerationError, PydanticUserError):
        return PLAIN


_local_codecs: WeakKeyDictionary[CodeType, tuple[object, Codec]] = WeakKeyDictionary()


def _codec_of_local(function: FunctionType) -> Codec:
    """A function inside another is made again each time; its code and its annotation are not.

    It must not be cached: all that it closes over would stay alive with it.
    """
    annotation = function.__annotations__.get("return")
    known = _local_codecs.get(function.__code__)
    if known is None or known[0] != annotation:
        known = annotation, _codec_of.__wrapped__(function)
        _local_codecs[function.__code__] = known
    return known[1]


def reference_to(function: Callable[..., Any]) -> str | None:
    """Return ``module:qualname`` if the very same function is found there, else ``None``."""
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", None)
    if module is None or name is None or "<" in name:
        return None
    reference = f"{module}:{name}"
    try:
        return reference if resolve(reference) is function else None
    except LookupError:
        return None


def resolve(reference: str) -> Callable[..., Any]:
    """Find the function of a reference, among the modules that are loaded: none is imported.

    Raises:
        LookupError: it is not there.
    """
    module, _, name = reference.partition(":")
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise LookupError(reference)  # noqa: TRY004 - it is the name that leads nowhere
    return cast("Callable[..., Any]", found)

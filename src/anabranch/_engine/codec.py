"""Codecs: turn the values of functions into the JSON of journal entries, and back.

Every value takes the round trip, even in the run that made it. So a tool sees the same value in its
first run and in each replay. Bytes are base64 in JSON, even in models.
"""

from __future__ import annotations

import functools
import inspect
import json
import math
import operator
import sys
from collections.abc import Callable
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any, TypeAlias, cast, get_type_hints
from weakref import WeakKeyDictionary

from pydantic import BaseModel, JsonValue, PydanticUserError, TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError
from pydantic_core import PydanticSerializationError, SchemaSerializer, SchemaValidator

from anabranch._engine.pinning import content
from anabranch.errors import SerializationError

_SCALARS = (str, int, float, bool, type(None))
_ATOMS = frozenset(_SCALARS)
_TOO_LONG = 10**sys.int_info.default_max_str_digits


class Codec:
    """Writes and reads the values of one function, by the ``adapter`` of its return annotation.

    Without an adapter, values must be plain JSON. ``exact`` is the annotation if values of exactly
    that type are plain JSON, and ``refused`` the name of an annotation whose values no JSON can
    hold.
    """

    __slots__ = ("_exact", "_name", "_reader", "_refused", "_writer")

    def __init__(
        self, adapter: TypeAdapter[Any] | None, exact: type[Any] | None = None, refused: str = ""
    ) -> None:
        self._exact = exact
        self._refused = refused
        self._name = str(adapter).removeprefix("TypeAdapter(").removesuffix(")")
        self._writer: SchemaSerializer | None = None
        self._reader: SchemaValidator | None = None
        if adapter is not None:
            self._writer, self._reader = _halves(adapter)

    def require_writable(self, step_id: str) -> None:
        """Refuse a function whose values no JSON can hold, before it has an effect."""
        if self._refused:
            raise SerializationError(step_id, self._refused, "the return annotation says so")

    def record(self, step_id: str, value: object) -> JsonValue:
        """Return the JSON of ``value``, which reads back as an equal value."""
        written = self.encode(step_id, value)
        if self._reader is not None and type(value) is not self._exact:
            try:
                again = self.decode(step_id, written)
            except SerializationError as problem:
                raise SerializationError(
                    step_id, type(value).__name__, problem.reason
                ) from problem.__cause__
            if not same(value, again):
                reason = f"the journal returns {_difference(value, again)}"
                raise SerializationError(step_id, type(value).__name__, reason)
        return written

    def encode(self, step_id: str, value: object) -> JsonValue:
        """Return the JSON of ``value``, which shares no mutable object with ``value``."""
        if self._writer is not None and type(value) is not self._exact:
            try:
                value = self._writer.to_python(value, mode="json", by_alias=False, warnings="error")
            except (PydanticSerializationError, ValueError, TypeError) as problem:
                raise SerializationError(
                    step_id,
                    type(value).__name__,
                    f"it does not fit the return annotation {self._name}",
                ) from problem
        try:
            return _plain(step_id, value)
        except RecursionError:
            raise SerializationError(
                step_id, type(value).__name__, "it is nested too deep"
            ) from None

    def decode(self, step_id: str, value: JsonValue) -> Any:  # noqa: ANN401 - the type is the function's
        """Return a new object from its JSON, ``value``."""
        if self._reader is None or type(value) is self._exact:
            return value if type(value) in _ATOMS else copied(value)
        # Fields are written and read by name: an alias may be meant for one direction only.
        try:
            return self._reader.validate_python(value, by_alias=False, by_name=True)
        except ValidationError:  # a strict model accepts a date as JSON, and not as Python's text
            pass
        try:
            return self._reader.validate_json(json.dumps(value), by_alias=False, by_name=True)
        except ValidationError as problem:
            raise SerializationError(
                step_id, self._name, f"its JSON does not fit the return annotation {self._name}"
            ) from problem


def same(value: object, again: object) -> bool:
    """Return whether ``value`` equals ``again``, by its class or by its fields."""
    try:
        if again == value:
            return True
    except (TypeError, ValueError):  # arrays have no single truth
        pass
    return content(value) == content(again)


def _difference(value: object, again: object, place: str = "") -> str:
    """Return in words the first part of ``value`` that differs in ``again``, and its place."""
    at = f" at {place[1:]!r}" if place else ""
    if type(value) is not type(again):
        return f"{type(again).__name__} for the {type(value).__name__}{at}"
    parts, others = _parts(value), _parts(again)
    for name, part in parts.items():
        if name in others and not same(part, others[name]):
            return _difference(part, others[name], f"{place}.{name}")
    return f"another {type(value).__name__}{at}"


def _parts(value: object) -> dict[Any, object]:
    if isinstance(value, dict):
        return cast("dict[Any, object]", value)
    if isinstance(value, list | tuple):
        return dict(enumerate(cast("list[object]", value)))
    return dict(vars(value)) if hasattr(value, "__dict__") else {}


def _halves(adapter: TypeAdapter[Any]) -> tuple[SchemaSerializer, SchemaValidator]:
    """Return the serializer and the validator of an annotation.

    An adapter's methods would check each of their options again for every value.
    """
    binary = _replaced(adapter.core_schema, _base64_in)
    binary = _replaced(binary, _iterable_as_list)
    if binary is adapter.core_schema:
        return adapter.serializer, cast("SchemaValidator", adapter.validator)
    # A class's own serializer and validator, made before, know nothing of base64.
    options: dict[str, Any] = {"config": _BASE64, "_use_prebuilt": False}
    return SchemaSerializer(binary, **options), SchemaValidator(binary, **options)


_BASE64 = {"ser_json_bytes": "base64", "val_json_bytes": "base64"}


def repeatable(schema: Any, validator: object) -> SchemaValidator:  # noqa: ANN401 - a schema of pydantic's
    """Return the ``validator`` of a schema, which reads an ``Iterable`` as a list, and "nan" as no number.

    pydantic reads an ``Iterable`` lazily and once: the first reader would empty the value. JSON has no
    NaN and no infinity, and every comparison with NaN is false.
    """
    read = _replaced(_replaced(schema, _iterable_as_list), _finite)
    if read is schema:
        return cast("SchemaValidator", validator)
    return SchemaValidator(read, _use_prebuilt=False)  # a model's own validator knows no lists


_Part: TypeAlias = dict[str, Any]
"""A part of one of pydantic's schemas."""


def _replaced(schema: Any, change: Callable[[_Part, _Part], _Part]) -> Any:  # noqa: ANN401 - a schema of pydantic's, or a part of one
    """Return ``schema`` with ``change`` applied to each part; the same object if nothing changes.

    ``change`` gets each part twice: as it was, and with its inner parts replaced.
    """
    if isinstance(schema, dict):
        parts = cast("_Part", schema)
        inner = {key: _replaced(part, change) for key, part in parts.items()}
        is_same = all(inner[key] is part for key, part in parts.items())
        return change(parts, parts if is_same else inner)
    if isinstance(schema, list):
        items = cast("list[object]", schema)
        read = [_replaced(part, change) for part in items]
        return read if any(map(operator.is_not, read, items)) else items
    return schema


def _base64_in(before: _Part, part: _Part) -> _Part:
    if before.get("type") == "bytes":
        return dict(part)  # another object: the parts around it change as well
    if part is not before and part.get("type") in ("model", "dataclass", "typed-dict"):
        return {**part, "config": {**part.get("config", {}), **_BASE64}}
    return part


def _iterable_as_list(_: _Part, part: _Part) -> _Part:
    return {**part, "type": "list"} if part.get("type") == "generator" else part


def _finite(_: _Part, part: _Part) -> _Part:
    # An author may allow infinity: Annotated[float, AllowInfNan(True)].
    return {"allow_inf_nan": False, **part} if part.get("type") == "float" else part


_STEADY = frozenset({list, dict, set, frozenset, tuple, str, bytes, int, float, bool})
"""Factories of defaults that return equal values in every round."""


def drawn_codec(adapter: TypeAdapter[Any]) -> Codec | None:
    """Return the codec of a type with a default such as ``uuid4()``, which differs in each round."""
    return Codec(adapter) if _draws(adapter.core_schema) else None


def _draws(schema: object) -> bool:
    if isinstance(schema, dict):
        parts = cast("_Part", schema)
        if "default_factory" in parts and not _is_steady(parts["default_factory"]):
            return True
        return any(map(_draws, parts.values()))
    return isinstance(schema, list) and any(map(_draws, cast("list[object]", schema)))


def _is_steady(factory: object) -> bool:
    if isinstance(factory, type) and issubclass(factory, BaseModel):
        return True  # the schema has the defaults of its fields
    return factory in _STEADY


PLAIN = Codec(None)


def copied(value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        made: dict[str, JsonValue] = {}
        for key, item in value.items():  # no deeper on the stack than what wrote it (_plain)
            made[key] = copied(item)
        return made
    if isinstance(value, list):
        return [copied(item) for item in value]
    return value


def _plain(step_id: str, value: object) -> JsonValue:
    """Return a copy of ``value`` made of JSON's own types; tuples become lists."""
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
                raise SerializationError(step_id, "dict", f"its key {key!r} is not a string")
            made[key] = _plain(step_id, item)
        return made
    raise SerializationError(step_id, kind.__name__, _hint(kind))


def _hint(kind: type[Any]) -> str:
    """Return a sentence that names the annotation for values of ``kind``; empty if there is none."""
    try:
        TypeAdapter(kind)
    except (PydanticUserError, TypeError):
        return ""
    return f"it needs the return annotation {kind.__name__}"


def codec_of(function: Callable[..., object]) -> Codec:
    if type(function) is FunctionType and not function.__code__.co_flags & inspect.CO_NESTED:
        return _codec_of(function)  # nearly always
    inner = function if isinstance(function, FunctionType) else _innermost(function)
    if isinstance(inner, FunctionType) and "<locals>" in inner.__qualname__:
        return _codec_of_local(inner)
    return _codec_of(inner)


def _innermost(function: Callable[..., object]) -> Callable[..., object]:
    """Return the function behind partials, bound methods and callable objects, as a cache key."""
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
    except PydanticUserError as problem:
        if isinstance(problem, PydanticSchemaGenerationError) and inspect.isclass(annotation):
            return Codec(None, refused=annotation.__qualname__)  # pydantic knows nothing of it
        return PLAIN


_local_codecs: WeakKeyDictionary[CodeType, tuple[object, Codec]] = WeakKeyDictionary()


def _codec_of_local(function: FunctionType) -> Codec:
    """Return the codec of a function that is defined inside another, cached by its code object.

    A cached function would keep alive all that it closes over:
    test_the_codec_cache_does_not_keep_a_recreated_function_alive.
    """
    annotation = function.__annotations__.get("return")
    known = _local_codecs.get(function.__code__)
    if known is None or known[0] != annotation:
        known = annotation, _codec_of.__wrapped__(function)
        _local_codecs[function.__code__] = known
    return known[1]


def reference_to(function: Callable[..., Any]) -> str | None:
    """Return ``module:qualname`` if this name leads to ``function``, else ``None``."""
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
    """Return the function that ``reference`` names in a loaded module; import nothing."""
    module, _, name = reference.partition(":")
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise LookupError(reference)  # noqa: TRY004 - the name leads nowhere
    return cast("Callable[..., Any]", found)

"""Makes the fingerprint of a function's name and arguments, from the arguments' content.

A value that is no JSON gets one canonical form, which is equal for equal values in every process.
The pin of an object without content (a connection, a client, a function) is its type.
"""

from __future__ import annotations

import binascii
import dataclasses
import datetime as dt
import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import lru_cache, partial
from hashlib import blake2s
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Address,
    IPv6Interface,
    IPv6Network,
)
from pathlib import PurePath
from re import Pattern
from typing import Any, cast
from uuid import UUID
from zoneinfo import ZoneInfo

from pydantic import AnyUrl, BaseModel, JsonValue, Secret, SecretBytes, SecretStr

LENGTH = 6
"""Characters in a fingerprint."""

canonical: Callable[[Any], str] = json.JSONEncoder(separators=(",", ":"), sort_keys=True).encode
"""JSON with one spelling for equal values. ASCII, so that lone surrogates do not raise."""

_PLAIN = frozenset({int, bool, type(None)})


def fingerprint(*parts: JsonValue) -> str:
    """Return ``LENGTH`` characters that identify ``parts``: 36 bits of BLAKE2s.

    They guard against accidents, and not against attacks: a journal leaves the server sealed.
    """
    # Most parts are texts and numbers, which are spelled more quickly than JSON is.
    spelled = ""
    for part in parts:
        kind = type(part)
        if kind is str:
            spelled += f"{len(part)}:{part}"  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - it is a text
        elif kind in _PLAIN:
            spelled += f"{part},"
        else:
            spelled += f"{canonical(part)};"
    digest = blake2s(spelled.encode("utf-8", "surrogatepass")).digest()
    return binascii.b2a_base64(digest[:5])[:LENGTH].decode()


def pin(function: Callable[..., object], args: Sequence[Any]) -> str:
    """Return the fingerprint of the function's name and its arguments, with those of a partial."""
    if isinstance(function, partial):
        made = cast("partial[object]", function)
        named: list[Any] = [made.keywords] if made.keywords else []
        return pin(made.func, [*made.args, *args, *named])
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    try:
        return fingerprint(name, *args)
    except (TypeError, ValueError, RecursionError):
        return fingerprint(name, *map(_content_or_type, args))


def _content_or_type(value: object) -> JsonValue:
    try:
        return content(value)
    except (RecursionError, TypeError, ValueError):  # a value in itself, or an array of objects
        return type(value).__qualname__


def content(value: object) -> JsonValue:
    """Return JSON that is the same for equal values of one type, in every process."""
    kind: Any = type(value)
    if kind in _AS_THEY_ARE:
        return cast("JsonValue", value)
    read = _reader_of(kind)
    name: str = kind.__qualname__
    return name if read is None else [name, read(value)]


@lru_cache(maxsize=1024)
def _reader_of(kind: Any) -> Callable[[Any], JsonValue] | None:  # noqa: ANN401 - a class
    """Return the function that reads the content of a class's objects, or ``None``."""
    for kinds, read in _READERS:
        if issubclass(kind, kinds):
            return read
    if dataclasses.is_dataclass(kind):
        return partial(
            _fields, tuple(each.name for each in dataclasses.fields(kind) if each.compare)
        )
    if hasattr(kind, "__attrs_attrs__"):
        return partial(_fields, tuple(each.name for each in kind.__attrs_attrs__ if each.eq))
    if hasattr(kind, "tobytes"):  # an array
        return _buffer
    if kind.__eq__ is not object.__eq__ and kind.__dictoffset__:
        return _attributes
    return None


def _fields(names: tuple[str, ...], value: object) -> JsonValue:
    return [content(getattr(value, name)) for name in names]


def _attributes(value: object) -> JsonValue:
    return _mapping(vars(value))


def _model(value: BaseModel) -> JsonValue:
    fields = _fields(tuple(type(value).model_fields), value)
    return [fields, _mapping(value.__pydantic_extra__)] if value.__pydantic_extra__ else fields


def _mapping(value: Mapping[Any, Any]) -> JsonValue:
    pairs: list[JsonValue] = [[content(key), content(item)] for key, item in value.items()]
    return sorted(pairs, key=canonical)


def _set(value: AbstractSet[Any]) -> JsonValue:
    return sorted(map(content, value), key=canonical)


def _sequence(value: Sequence[Any]) -> JsonValue:
    return [content(item) for item in value]


def _moment(value: dt.datetime | dt.date | dt.time) -> JsonValue:
    # An hour that a clock goes through twice is two moments of one text.
    zone: object = getattr(value, "tzinfo", None)
    return [value.isoformat(), str(zone), getattr(value, "fold", 0)]


def _buffer(value: Any) -> JsonValue:  # noqa: ANN401 - bytes, an array, and the like
    held = memoryview(value)
    if "O" in held.format:  # addresses of objects
        raise TypeError(held.format)
    return [held.format, list(held.shape or ()), blake2s(held.tobytes()).hexdigest()]


_AS_THEY_ARE = frozenset({str, int, float, bool, type(None)})
_TEXTS = (
    Decimal, Fraction, complex, range, PurePath, UUID, AnyUrl, ZoneInfo, dt.timezone, dt.timedelta,
    IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network,
    str, int, float,  # and the author's subclasses of these
)  # fmt: skip
_READERS: tuple[tuple[Any, Callable[[Any], JsonValue]], ...] = (
    (Enum, lambda value: value.name),
    (BaseModel, _model),
    (_TEXTS, str),
    ((dt.datetime, dt.date, dt.time), _moment),
    (Mapping, _mapping),
    (AbstractSet, _set),
    ((list, tuple, deque), _sequence),
    (Pattern, lambda value: [content(value.pattern), value.flags]),
    ((SecretStr, SecretBytes, Secret), lambda value: content(value.get_secret_value())),
    ((bytes, bytearray, memoryview), _buffer),
)
"""Readers of a value's content, by its class; the first class that fits decides."""

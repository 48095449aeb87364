"""Checks values against JSON Schemas of other programs, without backtracking, network, or endless work.

An automaton matches patterns, references lead only inside the schema, and a check has a limit of
processor time. A part that cannot be checked in time counts as fitting: the author of the schema
checks as well.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from datetime import date, datetime
from functools import lru_cache, partial
from itertools import islice
from math import prod
from typing import Any, Final, TypeAlias, cast
from urllib.parse import urlsplit

from pydantic import JsonValue
from pydantic_core import SchemaError, SchemaValidator, core_schema

from anabranch._text import encodable, read_json

SHARE: Final = 0.25
"""Seconds of processor time for one check."""
MOST_PARTS: Final = 100_000
"""Maximum values in a schema, and in a value to check."""
MOST_MISFITS: Final = 100
LONGEST_MATCHED: Final = 1_000
"""Maximum characters of a text that a pattern is matched with."""
LARGEST_PATTERN: Final = 4_000
"""Maximum characters of a pattern, times its counted repetitions."""
LONGEST_REASON: Final = 300

UNCHECKED: Final = {"patternProperties", "unevaluatedProperties", "unevaluatedItems"}
"""Keywords for which jsonschema matches patterns, or follows references, without bounds."""
BESIDE: Final = {"additionalProperties"}
"""Keywords that need patterns if the schema has ``patternProperties``."""
FORMATS: Final = ("email", "uri", "date", "date-time")

_BRACES: Final = re.compile(r"\{[0-9, ]{1,40}\}")
_COUNTS: Final = re.compile(r"[0-9]{1,6}")

Keyword: TypeAlias = Callable[[Any, Any, Any, Any], Iterator[Any] | None]

_ends_at: ContextVar[float] = ContextVar("anabranch.foreign_schema.ends_at")


class _UncheckedError(Exception):
    """The check of a value against a schema would take too long."""


class UnusableSchemaError(ValueError):
    """A schema is no JSON Schema, or cannot be compared with any value; the message says why."""


def misfits(schema: Mapping[str, Any], content: Mapping[str, JsonValue]) -> list[tuple[str, str]]:
    """Return the faults of a form's content: field and reason; the field is empty for the whole form."""
    try:
        found = _errors(schema, content, formats=True)
    except UnusableSchemaError:
        return []
    return [(_field_of(error), _line(error)) for error in found]


def filled_in(schema: Mapping[str, Any], content: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return a form's content, with texts converted to the types of fields where possible."""
    required: Any = schema.get("required")
    asked = cast("list[object]", required) if isinstance(required, list) else []
    meant: dict[str, JsonValue] = {}
    for name, value in content.items():
        field = _part(_part(schema, "properties"), name)
        kind = field.get("type")
        is_empty = value is None or (value == "" and (kind != "string" or "format" in field))
        if is_empty and name not in asked and isinstance(kind, str) and kind != "null":
            continue
        if isinstance(value, list):
            kinds = _part(field, "items").get("type", "string")
            meant[name] = [_scalar(each, kinds) for each in value]
        else:
            meant[name] = _scalar(value, kind)
    return meant


def _scalar(value: JsonValue, kind: object) -> JsonValue:
    if type(value) in (int, float) and kind == "string":
        return json.dumps(value)
    return _held(value, kind) if isinstance(value, str) else value


def _held(text: str, kind: object) -> JsonValue:
    types: dict[str, tuple[type, ...]] = {
        "integer": (int,),
        "number": (int, float),
        "boolean": (bool,),
    }
    if not isinstance(kind, str) or kind not in types:
        return text
    try:
        read: object = read_json(text.strip().lower() if kind == "boolean" else text)
    except ValueError:
        return text
    fits = isinstance(read, types[kind]) and isinstance(read, bool) is (kind == "boolean")
    return cast("JsonValue", read) if fits else text


def _part(schema: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    part: Any = schema.get(key)
    return cast("dict[str, Any]", part) if isinstance(part, dict) else {}


def misfit(schema: Mapping[str, Any], value: object) -> str | None:
    """Return a reason why ``value`` does not fit ``schema``, or raise ``UnusableSchemaError``."""
    found = _errors(schema, value, formats=False)
    return _line(_best_of(found)) if found else None


def check_schema(schema: Mapping[str, Any]) -> None:
    """Raise ``UnusableSchemaError`` if ``schema`` is no JSON Schema, or the check takes too long."""
    if not _is_moderate(schema):
        raise UnusableSchemaError("the schema is too large")
    try:
        fault = _fault_of(json.dumps(schema))
    except RecursionError:
        fault = "it is nested too deeply"
    except (TypeError, ValueError) as error:
        fault = _shortened(f"it cannot be read: {error}")
    if fault is not None:
        raise UnusableSchemaError(fault)


@lru_cache(maxsize=32)
def _fault_of(text: str) -> str | None:
    schema = cast("dict[str, Any]", read_json(text))
    try:
        checker: Any = _checker(schema)
        found = _listed(checker(checker.META_SCHEMA, registry=_nothing()), schema)
    except _UncheckedError:
        return "the schema is too large"
    except ArithmeticError as error:  # from a number in the schema
        return _shortened(f"it cannot be read: {error}")
    return _line(_best_of(found)) if found else None


def matches(pattern: str, text: str) -> bool:
    """Return whether ``text`` matches ``pattern``; true if the search could take too long."""
    if len(text) > LONGEST_MATCHED or (automaton := _automaton(pattern)) is None:
        return True
    return automaton.isinstance_python(encodable(text))


def has_format(text: str, kind: str) -> bool:
    """Return whether ``text`` has the format ``kind``; true for formats that the protocol lacks."""
    try:
        match kind:
            case "email":
                return re.fullmatch(r"[^@\s]+@[^@\s]+", text) is not None
            case "uri":
                return bool(urlsplit(text).scheme)
            case "date":
                return bool(date.fromisoformat(text))
            case "date-time":
                return bool(datetime.fromisoformat(text))
            case _:  # a format of a newer protocol; the server checks it
                return True
    except ValueError:
        return False


def _errors(schema: Mapping[str, Any], value: object, *, formats: bool) -> list[Any]:
    from referencing.exceptions import Unresolvable  # noqa: PLC0415 - slow

    if not (_is_moderate(schema) and _is_moderate(value)):
        return []
    check_schema(schema)
    checker: Any = _checker(schema)
    try:
        made = checker(schema, registry=_nothing(), format_checker=_formats() if formats else None)
        return _listed(made, value)
    except (_UncheckedError, ArithmeticError, ValueError):  # from numbers, or from a URL
        return []
    except RecursionError:
        raise UnusableSchemaError("it refers to itself") from None
    except Unresolvable as error:
        raise UnusableSchemaError(_shortened(str(error))) from None
    except (TypeError, LookupError, AttributeError) as error:  # the schema names the wrong dialect
        raise UnusableSchemaError(_shortened(f"it cannot be read: {error}")) from None


def _listed(validator: Any, value: object) -> list[Any]:  # noqa: ANN401 - jsonschema has no types
    """Return the first faults of ``value``, or raise ``_UncheckedError`` after :data:`SHARE`."""
    token = _ends_at.set(time.thread_time() + SHARE)
    try:
        return list(islice(validator.iter_errors(value), MOST_MISFITS))
    finally:
        _ends_at.reset(token)


def _is_moderate(value: object) -> bool:
    return sum(1 for _ in islice(_parts(value), MOST_PARTS + 1)) <= MOST_PARTS


def _parts(value: object) -> Iterator[object]:
    left = [value]
    while left:
        yield (part := left.pop())
        if isinstance(part, dict):
            left += cast("dict[str, object]", part).values()
        elif isinstance(part, list):
            left += cast("list[object]", part)


@lru_cache(maxsize=8)
def _bounded(kind: Any) -> Any:  # noqa: ANN401 - jsonschema has no types
    """Return a validator class that matches patterns only by automaton, and ends in time."""
    import attrs  # noqa: PLC0415 - slow
    import jsonschema  # type: ignore[import-untyped]  # noqa: PLC0415 - slow

    library: Any = jsonschema
    keywords = {**kind.VALIDATORS, "pattern": _pattern, "uniqueItems": _unique}
    timed = {name: _timed(name, keyword) for name, keyword in keywords.items()}
    bounded: Any = library.validators.extend(kind, timed)
    # The default would continue as another class, without bounds, if a part names a dialect.
    bounded.evolve = attrs.evolve
    return bounded


def _timed(name: str, keyword: Keyword) -> Keyword:
    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:  # noqa: ANN401
        if time.thread_time() > _ends_at.get():
            raise _UncheckedError
        if name not in UNCHECKED and not (name in BESIDE and "patternProperties" in schema):
            yield from keyword(validator, value, instance, schema) or ()

    return check


def _pattern(_validator: Any, pattern: Any, text: Any, _schema: Any) -> Iterator[Any]:  # noqa: ANN401
    from jsonschema import ValidationError  # noqa: PLC0415 - slow

    if isinstance(text, str) and not matches(pattern, text):
        yield ValidationError(f"{text!r} does not match {pattern!r}")


def _unique(_validator: Any, wanted: Any, items: Any, _schema: Any) -> Iterator[Any]:  # noqa: ANN401
    """Compare each item with the set of earlier items, because jsonschema compares all pairs."""
    from jsonschema import ValidationError  # noqa: PLC0415 - slow

    if wanted and isinstance(items, list):
        texts = [json.dumps(_whole(item), sort_keys=True) for item in cast("list[object]", items)]
        if len(set(texts)) < len(texts):
            yield ValidationError(f"{items!r} has non-unique elements")


def _whole(value: object) -> object:
    """Return ``value`` with 1 in place of 1.0: JSON Schema has one kind of number."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_whole(each) for each in cast("list[object]", value)]
    if isinstance(value, dict):
        return {key: _whole(each) for key, each in cast("dict[str, object]", value).items()}
    return value


def _checker(schema: Mapping[str, Any]) -> Any:  # noqa: ANN401 - jsonschema has no types
    from jsonschema import Draft202012Validator  # noqa: PLC0415 - slow
    from jsonschema.validators import validator_for  # type: ignore[import-untyped]  # noqa: PLC0415 - slow

    dialect = schema.get("$schema")
    known = {"$schema": dialect} if isinstance(dialect, str) else {}
    return _bounded(validator_for(known, default=Draft202012Validator))


def _nothing() -> Any:  # noqa: ANN401 - jsonschema has no types
    """Return an empty registry of documents, so that references stay within the schema."""
    from referencing import Registry  # noqa: PLC0415 - slow

    nothing: Any = cast("Any", Registry)()
    return nothing


@lru_cache(maxsize=1)
def _formats() -> Any:  # noqa: ANN401 - jsonschema has no types
    from jsonschema import FormatChecker  # noqa: PLC0415 - slow

    checker: Any = FormatChecker(formats=())
    for kind in FORMATS:
        checker.checks(kind)(partial(_formatted, kind))
    return checker


def _formatted(kind: str, value: object) -> bool:
    return not isinstance(value, str) or has_format(value, kind)


@lru_cache(maxsize=32)
def _automaton(pattern: str) -> SchemaValidator | None:
    """Return a matcher for ``pattern`` whose time is linear in the text, or ``None`` if there is none."""
    counted = prod(max(1, *map(int, _COUNTS.findall(each))) for each in _BRACES.findall(pattern))
    if len(pattern) * counted > LARGEST_PATTERN:
        return None
    try:
        text = core_schema.str_schema(pattern=encodable(pattern), regex_engine="rust-regex")
        return SchemaValidator(text)
    except SchemaError:  # the pattern has lookarounds or back-references, or is invalid
        return None


def _best_of(errors: list[Any]) -> Any:  # noqa: ANN401 - jsonschema has no types
    import jsonschema  # noqa: PLC0415 - slow

    library: Any = jsonschema
    return library.exceptions.best_match(iter(errors))


def _line(error: Any) -> str:  # noqa: ANN401 - jsonschema has no types
    return _shortened(str(error.message))


def _shortened(text: str) -> str:
    """Return one line of ``text``; a long line loses characters after its first hundred."""
    line = text.partition("\n")[0]
    return line if len(line) <= LONGEST_REASON else f"{line[:100]}…{line[100 - LONGEST_REASON :]}"


def _field_of(error: Any) -> str:  # noqa: ANN401 - jsonschema has no types
    """Return the field that an error concerns; a missing field is named in the error itself."""
    if error.absolute_path:
        return str(error.absolute_path[0])
    if error.validator == "required":
        missing = [name for name in error.validator_value if name not in error.instance]
        return next((name for name in missing if repr(name) in error.message), "")
    return ""

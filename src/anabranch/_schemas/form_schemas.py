"""Reduces the JSON Schemas of form fields to the keys that the MCP protocol defines.

Strict clients show no form with another key. Such keys become words in the description.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias, cast

Schema: TypeAlias = Mapping[str, Any]

_SHARED: Final = ("type", "title", "description", "default")
_KEYS: Final = {
    "string": ("format", "minLength", "maxLength"),
    "integer": ("minimum", "maximum"),
    "number": ("minimum", "maximum"),
    "boolean": (),
    "array": ("items", "minItems", "maxItems"),
}
"""Keys by type. Source: MCP 2026-07-28, ``PrimitiveSchemaDefinition``."""
_CHOICES: Final = ("oneOf", "enum", "enumNames")
_CHOSEN: Final = (str, int, float)
_FORMATS: Final = ("email", "uri", "date", "date-time")

_WORDS: Final = {
    "minimum": "at least {}",
    "exclusiveMinimum": "greater than {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "pattern": "matches {}",
    "format": "format {}",
    "const": "must be {}",
    "enum": "one of {}",
    "examples": "for example {}",
}
_SILENT: Final = {"deprecated", "uniqueItems", "readOnly", "writeOnly", "enumNames"}
"""Keys that the description does not write as ``key: value``."""


def with_text_choices(schema: Schema) -> dict[str, Any]:
    """Return ``schema`` with choices that are texts, since the protocol has no choice of numbers."""
    chosen = dict(schema)
    if type(schema.get("const")) in _CHOSEN:
        chosen["enum"] = [chosen.pop("const")]
    titled = cast("list[Schema]", chosen.get("oneOf", []))
    if (
        chosen.get("type") in ("integer", "number")
        and titled
        and all("const" in each for each in titled)
    ):
        chosen["enum"] = [each["const"] for each in chosen.pop("oneOf")]
        chosen["enumNames"] = [each.get("title", _spelled(each["const"])) for each in titled]
    values = cast("list[object]", chosen.get("enum", []))
    texts = [_spelled(each) for each in values]
    is_told_apart = len(set(texts)) == len(texts) and all(type(each) in _CHOSEN for each in values)
    if texts == values or not is_told_apart:
        return chosen
    chosen |= {"type": "string", "enum": texts}
    if "enumNames" in chosen:
        named = zip(chosen.pop("enum"), chosen.pop("enumNames"), strict=True)
        chosen["oneOf"] = [{"const": text, "title": title} for text, title in named]
    if "default" in chosen:
        chosen["default"] = _spelled(chosen["default"])
    return chosen


def protocol_field(schema: Schema) -> dict[str, Any]:
    """Return ``schema`` with MCP's keys alone, and with the other rules in its description."""
    schema = _with_bounds(schema)
    kind = schema.get("type", "string")
    known = _choice_keys(schema) if kind == "string" else ()
    known = (*_SHARED, *(known or _KEYS.get(kind, ())))
    field = {key: schema[key] for key in schema if key in known}
    if field.get("format", _FORMATS[0]) not in _FORMATS:
        del field["format"]
    field |= _protocol_choices(field)
    words = "; ".join(_words({key: schema[key] for key in schema if key not in field}))
    said = field.get("description")
    if words:
        field["description"] = f"{said} ({words})" if said else words
    return field


def _with_bounds(schema: Schema) -> dict[str, Any]:
    bounded = dict(schema)
    kind = schema.get("type")
    if kind not in ("integer", "number"):
        return bounded
    for key, exclusive, step, tightest in (
        ("minimum", "exclusiveMinimum", 1, max),
        ("maximum", "exclusiveMaximum", -1, min),
    ):
        bounds = [each for each in (_number(schema.get(key)),) if each is not None]
        beyond = _number(schema.get(exclusive))
        if isinstance(beyond, int) and kind == "integer":
            bounds.append(beyond + step)
            del bounded[exclusive]
        elif beyond is not None:
            bounds.append(beyond)
        if bounds:
            bounded[key] = tightest(bounds)
    return bounded


def _number(value: object) -> int | float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _choice_keys(schema: Schema) -> tuple[str, ...]:
    if "oneOf" in schema:
        return ("oneOf",)
    return _CHOICES[1:] if "enum" in schema else ()


def _protocol_choices(field: Schema) -> dict[str, Any]:
    """Return the keys of a field that hold choices, each choice with the protocol's keys alone."""
    found: dict[str, Any] = {}
    if "oneOf" in field:
        found["oneOf"] = _titled(field["oneOf"])
    items = field.get("items")
    if items is not None:
        titled = items.get("anyOf", items.get("oneOf"))
        found["items"] = (
            {"type": "string", "enum": items["enum"]}
            if titled is None
            else {"anyOf": _titled(titled)}
        )
        if "description" in items and "description" not in field:
            found["description"] = items["description"]
    return found


def _titled(choices: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"const": each["const"], "title": each.get("title", each["const"])} for each in choices]


def _words(schema: Schema) -> Iterator[str]:
    """Yield the rules of ``schema`` that a client cannot check or show, each in words."""
    for key, phrase in _WORDS.items():
        if key in schema:
            yield phrase.format(_spelled(schema[key]))
    if schema.get("deprecated"):
        yield "deprecated"
    for key, value in schema.items():
        is_known = key in _WORDS or key in _SILENT or key.startswith("$")
        if not is_known and isinstance(value, str | int | float):
            yield f"{key}: {_spelled(value)}"


def _spelled(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(_spelled, cast("list[object]", value)))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

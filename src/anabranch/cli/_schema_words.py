"""The JSON Schema of a value in a few words, for people: ``text of at most 20 characters``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

Schema = Mapping[str, Any]

_KINDS = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
_FORMATS = {
    "date": "a date (YYYY-MM-DD)",
    "date-time": "a date and time (ISO 8601)",
    "email": "an email address",
    "uri": "a URI",
    "uuid": "a UUID",
}
_BOUNDS = (
    ("minimum", "maximum", ""),
    ("exclusiveMinimum", "exclusiveMaximum", ", exclusive"),
    ("minLength", "maxLength", " characters"),
    ("minItems", "maxItems", " items"),
    ("minProperties", "maxProperties", " entries"),
)
_DEPTH = 4
MOST_VARIANTS = 20
"""Variants that are put into words, at each of the levels."""


def schema_words(schema: object, definitions: Schema, *, depth: int = 0) -> str:
    """Return what ``schema`` accepts; ``definitions`` are its ``$defs``.

    A schema of another server may be anything: what cannot be said in words is "any value".
    """
    if not isinstance(schema, Mapping) or depth > _DEPTH:
        return "any value"
    known = cast("Schema", schema)
    if "$ref" in known:
        name = str(known["$ref"]).rpartition("/")[2]
        return schema_words(definitions.get(name), definitions, depth=depth + 1)
    if "const" in known:
        return json.dumps(known["const"], ensure_ascii=False)
    if isinstance(values := known.get("enum"), list):
        listed = cast("list[object]", values)
        return "one of " + ", ".join(json.dumps(each, ensure_ascii=False) for each in listed)
    for combined in ("anyOf", "oneOf"):
        if isinstance(variants := known.get(combined), list):
            given = cast("list[object]", variants)
            words = [
                schema_words(each, definitions, depth=depth + 1) for each in given[:MOST_VARIANTS]
            ]
            words += ["…"] if len(given) > MOST_VARIANTS else []
            return " or ".join(dict.fromkeys(words))
    return _plain(known, definitions, depth)


def _plain(schema: Schema, definitions: Schema, depth: int) -> str:
    kind = str(schema.get("type", ""))
    words = _FORMATS.get(str(schema.get("format")), _KINDS.get(kind, "any value"))
    if kind == "array" and "items" in schema:
        words = f"a list, each {schema_words(schema['items'], definitions, depth=depth + 1)}"
    fields = schema.get("properties")
    if kind == "object" and isinstance(fields, Mapping) and fields:
        words = f"an object with {', '.join(map(str, cast('Schema', fields)))}"
    notes = [_between(schema.get(low), schema.get(high), unit) for low, high, unit in _BOUNDS]
    if "pattern" in schema:
        notes.append(f"matching {schema['pattern']}")
    return ", ".join([words, *(note for note in notes if note)])


def _between(least: object, most: object, unit: str) -> str:
    if least is not None and most is not None:
        return f"{least} to {most}{unit}"
    if least is not None:
        return f"at least {least}{unit}"
    return "" if most is None else f"at most {most}{unit}"

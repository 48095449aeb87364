"""Arguments of a tool from the command line: ``name=value`` and ``--json``.

Owns how a value's text is read, by the type that the tool's schema gives. Whether the values are
allowed is for the server to say; it has the last word and names every field at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from anabranch.cli.errors import UsageError

__all__ = ["read_arguments"]

JSON_TYPES: dict[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
    type(None): "null",
}
WORDS = {
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "array": "a JSON list",
    "object": "a JSON object",
    "null": "null",
}


def read_arguments(
    pairs: Iterable[str], json_text: str | None, schema: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments: those of ``json_text``, and over them those of the ``pairs``.

    Raises:
        UsageError: a pair has no ``=``, a name comes twice, or a text is not what it should be.
    """
    arguments = _read_object(json_text) if json_text is not None else {}
    seen: set[str] = set()
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not (name and equals):
            raise UsageError(f"{pair!r} is no argument. Write name=value.")
        if name in seen:
            raise UsageError(f"{name!r} is given twice. Give it once.")
        seen.add(name)
        arguments[name] = _read_value(name, text, schema)
    return arguments


def _read_object(text: str) -> dict[str, Any]:
    try:
        value: object = json.loads(text)
    except ValueError as error:
        raise UsageError(f"--json is not JSON: {error}.") from error
    if not isinstance(value, dict):
        raise UsageError("--json must be a JSON object of the tool's arguments.")
    return cast("dict[str, Any]", value)


def _read_value(name: str, text: str, schema: Mapping[str, Any]) -> object:
    field = schema.get("properties", {}).get(name, {})
    types = set(_types(field, schema.get("$defs", {})))
    if types == {"string"}:
        return text
    try:
        value: object = json.loads(text)
    except ValueError:
        if "string" in types or not types:
            return text
        raise UsageError(_wrong(name, text, types)) from None
    if not types or _fits(value, types):
        return value
    if "string" in types:
        return text
    raise UsageError(_wrong(name, text, types))


def _types(field: Mapping[str, Any], definitions: Mapping[str, Any]) -> Iterator[str]:
    """Yield the JSON types that a field allows; none if anything goes."""
    reference: str = field.get("$ref", "")
    if reference:
        yield from _types(definitions.get(reference.rpartition("/")[2], {}), definitions)
    declared: str | list[str] = field.get("type", [])
    yield from [declared] if isinstance(declared, str) else declared
    for choices in ("allOf", "anyOf", "oneOf"):
        for choice in field.get(choices, ()):
            yield from _types(choice, definitions)
    if "type" not in field:
        for value in (*field.get("enum", ()), *([field["const"]] if "const" in field else ())):
            yield JSON_TYPES[type(value)]


def _fits(value: object, types: set[str]) -> bool:
    if type(value) is int and "number" in types:
        return True
    return JSON_TYPES[type(value)] in types


def _wrong(name: str, text: str, types: set[str]) -> str:
    wanted = " or ".join(words for kind, words in WORDS.items() if kind in types)
    return f"{name} must be {wanted}, not {text!r}. Write {name}=… or use --json."

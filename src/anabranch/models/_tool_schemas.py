"""Converts the schemas of tools to schemas that every provider accepts.

Providers refuse a whole request for one schema with ``oneOf``, ``anyOf`` or ``allOf`` at its top, with
a list without ``items``, or in an older dialect. A folded schema may accept more objects than the tool's schema, since the tool checks its arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast
from urllib.parse import unquote

from anabranch._schemas import UnusableSchemaError, check_schema

Schema: TypeAlias = dict[str, Any]

_ONE: Final = {
    "additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then",
    "unevaluatedItems", "unevaluatedProperties",
}  # fmt: skip
_LISTS: Final = {"allOf", "anyOf", "oneOf", "prefixItems"}
_MAPPINGS: Final = {"$defs", "dependentSchemas", "patternProperties", "properties"}
_DROPPED: Final = {"$id", "$schema", "definitions"}
_TOP: Final = {"additionalProperties", "description", "properties", "required", "title", "type"}
"""Keywords of a folded schema. Providers refuse or ignore all other keywords at the top."""


def folded(schema: Mapping[str, Any]) -> tuple[Schema, str]:
    """Return a schema that providers accept, and a sentence on rules that it lacks, or ""."""
    try:
        modern = _Modern(schema)
        top = modern.schema(schema)
        definitions = {**top.pop("$defs", {}), **modern.hoisted}
        made, choices = _Fold(definitions).top(top)
        if definitions:
            made["$defs"] = definitions
        check_schema(made)
    except RecursionError:
        raise UnusableSchemaError("it is nested too deeply") from None
    return made, choices


def parts_of(schema: Schema) -> list[object]:
    parts: list[object] = []
    mapped(schema, parts.append)
    return parts


def mapped(schema: Schema, change: Callable[[Any], Any]) -> Schema:
    made = dict(schema)
    for key, value in schema.items():
        if key in _ONE:
            made[key] = change(value)
        elif key in _LISTS:
            made[key] = [change(each) for each in value]
        elif key in _MAPPINGS:
            made[key] = {name: change(each) for name, each in value.items()}
    return made


def without_recursion(schema: Schema) -> Schema:
    definitions = _mapping(schema.get("$defs", {}))
    return schema | {"$defs": {name: _cut(each) for name, each in definitions.items()}}


def _cut(part: Any) -> Any:  # noqa: ANN401 - any part of a schema
    if isinstance(part, list):
        return [_cut(each) for each in cast("list[object]", part)]
    if isinstance(part, dict):
        return {key: _cut(each) for key, each in cast("Schema", part).items() if key != "$ref"}
    return part


class _Modern:
    """Converts any dialect to JSON Schema 2020-12, in which references lead to ``$defs`` only."""

    def __init__(self, whole: Mapping[str, Any]) -> None:
        self._whole = whole
        self._names: dict[str, str] = {}
        self.hoisted: Schema = {}

    def schema(self, given: object) -> Any:  # noqa: ANN401 - an object or a boolean
        if isinstance(given, bool):
            return given
        made: Schema = {}
        for key, value in _mapping(given).items():
            if key in ("const", "default") or (key in ("enum", "examples") and value is not None):
                made[key] = value
            elif value is not None and key not in _DROPPED:
                made |= self._keyword(key, value)
        for bound in ("exclusiveMinimum", "exclusiveMaximum"):  # of draft 4
            if isinstance(made.get(bound), bool):
                limit = made.get(bound.removeprefix("exclusive").lower())
                if made.pop(bound) and limit is not None:
                    made[bound] = limit
        if "array" in _types(made):
            made.setdefault("items", {})
        return made

    def _keyword(self, key: str, given: object) -> Schema:
        value: Any = given
        if key == "$ref":
            return self._reference(str(value))
        if key == "items" and isinstance(given, list):  # of draft 4
            key = "prefixItems"
        if (key == "type" and value == "any") or (key == "required" and isinstance(given, bool)):
            value = []  # of draft 3
        if key in ("required", "type", *_LISTS) and value == []:
            return {}
        if key in _ONE:
            value = self.schema(value)
        elif key in _LISTS and isinstance(given, list):
            value = [self.schema(each) for each in value]
        elif key in _MAPPINGS:
            value = {name: self.schema(each) for name, each in _mapping(value).items()}
        elif key == "required":
            value = list(dict.fromkeys(map(str, value)))
        return {key: value}

    def _reference(self, ref: str) -> Schema:
        place = [unquote(part).replace("~1", "/").replace("~0", "~") for part in ref.split("/")]
        found: Any = self._whole
        for part in place[1:]:
            if isinstance(found, list) and part.isdecimal():
                items = cast("Sequence[Any]", found)
                found = items[int(part)] if int(part) < len(items) else None
            else:
                found = cast("Schema", found).get(part) if isinstance(found, dict) else None
        if place[0] != "#" or not isinstance(found, dict):
            return {}
        if ref == f"#/$defs/{place[-1]}":
            return {"$ref": ref}
        if ref not in self._names:
            self._names[ref] = self._name(place[-1])
            self.hoisted[self._names[ref]] = self.schema(cast("object", found))
        return {"$ref": f"#/$defs/{self._names[ref]}"}

    def _name(self, wanted: str) -> str:
        name = wanted if wanted.isidentifier() else "part"
        taken = {*self._names.values(), *_mapping(self._whole.get("$defs") or {})}
        while name in taken:
            name += "_"
        return name


class _Fold:
    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions = definitions
        self._choices: list[str] = []

    def top(self, schema: Schema) -> tuple[Schema, str]:
        made = self._object(schema, frozenset())
        if made is None:
            raise UnusableSchemaError("the schema accepts no JSON object")
        empty: Schema = {"type": "object", "properties": {}}
        return empty | made, " ".join(self._choices)

    def _object(self, schema: object, seen: frozenset[str]) -> Schema | None:
        if isinstance(schema, bool):
            return {} if schema else None
        given = _mapping(schema)
        if (types := _types(given)) and "object" not in types:
            return None
        made: Schema = {key: value for key, value in given.items() if key in _TOP}
        if "type" in made:
            made["type"] = "object"
        if given.get("patternProperties"):  # indistinguishable from additional properties
            made.pop("additionalProperties", None)
        for alternatives in self._alternatives(given, seen):
            inner = seen | {str(given.get("$ref"))}
            found = [self._object(each, inner) for each in alternatives]
            parts = [part for part in found if part is not None]
            if not parts:
                return None
            self._choices += _choice(parts)
            made = _both(made, _either(parts))
        return made

    def _alternatives(
        self, schema: Mapping[str, Any], seen: frozenset[str]
    ) -> Iterator[Sequence[object]]:
        """Yield lists of schemas; an object must fit one schema of each list."""
        ref = schema.get("$ref")
        if isinstance(ref, str) and ref not in seen:
            yield [self._definitions.get(ref.rpartition("/")[2], True)]
        for each in schema.get("allOf", ()):
            yield [each]
        for key in ("oneOf", "anyOf"):
            if key in schema:
                yield schema[key]
        for key in ("then", "else"):
            if key in schema:
                yield [True, schema[key]]


def _both(one: Schema, other: Schema) -> Schema:
    made = one | {key: value for key, value in other.items() if key not in one}
    if properties := {**other.get("properties", {}), **one.get("properties", {})}:
        for name in one.get("properties", {}).keys() & other.get("properties", {}).keys():
            first, second = one["properties"][name], other["properties"][name]
            if first != second:
                properties[name] = {"allOf": [first, second]}
        order = dict.fromkeys([*one.get("properties", {}), *other.get("properties", {})])
        made["properties"] = {name: properties[name] for name in order}
    if required := [*one.get("required", ()), *other.get("required", ())]:
        made["required"] = list(dict.fromkeys(required))
    return made


def _either(parts: Sequence[Schema]) -> Schema:
    if len(parts) == 1:
        return dict(parts[0])
    schemas: dict[str, list[Any]] = {}
    for part in parts:
        for name, each in part.get("properties", {}).items():
            found = schemas.setdefault(name, [])
            if each not in found:
                found.append(each)
    made: Schema = {"properties": {name: _any_of(each) for name, each in schemas.items()}}
    needed = [set(part.get("required", ())) for part in parts]
    if required := [
        name for name in parts[0].get("required", ()) if all(name in n for n in needed)
    ]:
        made["required"] = required
    if all(part.get("additionalProperties") is False for part in parts):
        made["additionalProperties"] = False
    return made


def _any_of(schemas: Sequence[Any]) -> Any:  # noqa: ANN401 - an object or a boolean
    if len(schemas) == 1:
        return schemas[0]
    if all(isinstance(each, dict) and ("const" in each or "enum" in each) for each in schemas):
        kinds = [each.get("type") for each in schemas]
        values: list[Any] = []
        for each in schemas:
            for value in [each["const"]] if "const" in each else each["enum"]:
                values += [] if value in values else [value]
        return (
            {"type": kinds[0], "enum": values}
            if len({*map(str, kinds)}) == 1 and kinds[0]
            else {"enum": values}
        )
    return {"anyOf": list(schemas)}


def _choice(parts: Sequence[Schema]) -> Iterable[str]:
    needed = list(dict.fromkeys(tuple(part.get("required", ())) for part in parts))
    if len(needed) > 1:
        listed = [" and ".join(names) or "none of these" for names in needed]
        yield f"Give the arguments of one alternative: {'; '.join(listed)}."


def _types(schema: Mapping[str, Any]) -> Sequence[str]:
    kind: Any = schema.get("type") or []
    return [kind] if isinstance(kind, str) else kind


def _mapping(value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise UnusableSchemaError(f"it has {str(value)[:40]!r} instead of a schema")
    return cast("Mapping[str, Any]", value)

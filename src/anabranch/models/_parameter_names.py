"""Renames parameters of a tool that the provider would refuse, at any depth, and renames them back.

Each name has one replacement in the whole schema, so that alternatives agree. A key of an argument
is renamed only if the schema has such a property: the model chooses the keys of a mapping.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from pydantic import JsonValue

from anabranch.models._tool_schemas import Schema, mapped, parts_of

_ALTERNATIVES = ("allOf", "anyOf", "oneOf")
_CONDITIONS = ("if", "then", "else")


class ParameterNames:
    """The names of the parameters of one tool.

    Args:
        schema: the schema of the tool's parameters, whose references lead to its ``$defs``.
        allowed: the names that the provider takes.

    Attributes:
        schema: the schema for the provider; descriptions begin with the tool's own names.
    """

    def __init__(self, schema: Schema, allowed: re.Pattern[str]) -> None:
        self._wire = _wire_names(_names_in(schema), allowed)
        self._own = {wire: own for own, wire in self._wire.items()}
        self._unchanged = schema
        self.schema: Schema = _renamed(schema, self._wire) if self._wire else schema

    def sent(self, arguments: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """Return arguments under the names for the provider."""
        return _Keys(self._unchanged, self._wire).renamed(arguments)

    def read(self, arguments: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """Return arguments of a reply under the tool's own names."""
        return _Keys(self.schema, self._own).renamed(arguments)


def _names_in(schema: object) -> Iterator[str]:
    """Yield the names of all properties, the outer ones first."""
    waiting: list[object] = [schema]
    while waiting:
        part = waiting.pop(0)
        if isinstance(part, dict):
            yield from cast("Schema", part).get("properties", ())
            waiting += parts_of(cast("Schema", part))


def _wire_names(names: Iterable[str], allowed: re.Pattern[str]) -> dict[str, str]:
    """Return a replacement for each of ``names`` that is not allowed."""
    given = dict.fromkeys(names)
    taken = {name for name in given if allowed.fullmatch(name)}
    made: dict[str, str] = {}
    for own in given:
        if own not in taken:
            plain = re.sub(r"[^a-zA-Z0-9_.-]+", "_", own).strip("_")
            fits = allowed.fullmatch(plain) and plain not in taken
            made[own] = plain if fits else with_digest(plain, own)
            taken.add(made[own])
    return made


def with_digest(name: str, own: str) -> str:
    """Return ``name``, shortened, with a digest of ``own``."""
    digest = hashlib.sha256(own.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{name[:55]}_{digest}"


def _renamed(schema: Any, names: Mapping[str, str]) -> Any:  # noqa: ANN401 - an object or a boolean
    if not isinstance(schema, dict):
        return schema
    made = mapped(cast("Schema", schema), lambda part: _renamed(part, names))
    if "properties" in made:
        made["properties"] = {
            names.get(own, own): _described(own, held) if own in names else held
            for own, held in made["properties"].items()
        }
    if "dependentSchemas" in made:
        made["dependentSchemas"] = {names.get(k, k): v for k, v in made["dependentSchemas"].items()}
    if "required" in made:
        made["required"] = [names.get(name, name) for name in made["required"]]
    if "dependentRequired" in made:
        made["dependentRequired"] = {
            names.get(name, name): [names.get(each, each) for each in needed]
            for name, needed in made["dependentRequired"].items()
        }
    return made


def _described(own: str, held: object) -> Schema:
    part: Schema = {} if isinstance(held, bool) else cast("Schema", held)
    said = part.get("description")
    return part | {"description": f"{own}: {said}" if said else own}


class _Keys:
    """Renames the keys of a value by ``names``, if ``schema`` has them as properties."""

    def __init__(self, schema: Schema, names: Mapping[str, str]) -> None:
        self._schema = schema
        self._names = names

    def renamed(self, arguments: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        if not self._names:
            return dict(arguments)
        return self._object(arguments, self._all([self._schema]))

    def _value(self, value: JsonValue, schemas: Sequence[object]) -> JsonValue:
        if isinstance(value, dict):
            return self._object(value, self._all(schemas))
        if isinstance(value, list):
            return self._list(value, self._all(schemas))
        return value

    def _object(
        self, value: Mapping[str, JsonValue], schemas: Sequence[Schema]
    ) -> dict[str, JsonValue]:
        made: dict[str, JsonValue] = {}
        for key, held in value.items():
            own = [each["properties"][key] for each in schemas if key in each.get("properties", ())]
            other = [
                each["additionalProperties"] for each in schemas if "additionalProperties" in each
            ]
            made[self._names.get(key, key) if own else key] = self._value(held, own or other)
        return made

    def _list(self, value: Sequence[JsonValue], schemas: Sequence[Schema]) -> list[JsonValue]:
        first: list[Sequence[object]] = [each.get("prefixItems", ()) for each in schemas]
        rest = [each["items"] for each in schemas if "items" in each]
        return [
            self._value(held, [each[at] for each in first if at < len(each)] or rest)
            for at, held in enumerate(value)
        ]

    def _all(self, schemas: Iterable[object]) -> list[Schema]:
        """Return ``schemas``, their alternatives, and the definitions to which they refer."""
        waiting, found = list(schemas), list[Schema]()
        while waiting:
            each = waiting.pop()
            if not isinstance(each, dict) or any(each is one for one in found):
                continue
            schema = cast("Schema", each)
            found.append(schema)
            waiting += [part for key in _ALTERNATIVES for part in schema.get(key, ())]
            waiting += [schema[key] for key in _CONDITIONS if key in schema]
            name = str(schema.get("$ref")).rpartition("/")[2]
            waiting.append(self._schema.get("$defs", {}).get(name))
        return found

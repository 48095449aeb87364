"""Reads the forms of any server as fields that a user can fill in.

Servers write one field in many ways: a reference to an enum, ``anyOf`` with null, choices without a
type. A schema may be hostile, so the work on one is bounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias, cast

from anabranch._schemas.form_schemas import protocol_field

Schema: TypeAlias = Mapping[str, Any]
Choice: TypeAlias = dict[str, Any]

MOST_PARTS: Final = 10_000
"""Maximum schemas and choices in one form; each reference counts its target again."""

_KINDS: Final = ("string", "number", "integer", "boolean", "array")
"""Types of fields, the widest first. A field with several types has the first of them."""
_COMBINED: Final = ("anyOf", "oneOf")


class FormReader:
    def __init__(self, schema: Schema) -> None:
        self._root = schema
        self._parts = 0

    def form(self) -> dict[str, Any]:
        """Return the form with fields in the shapes of ``anabranch._schemas.form_fields.Field``.

        A field that no form can show has a type that ``Field`` refuses.
        """
        try:
            form = self._flattened(self._root)
            properties = form.get("properties")
            if isinstance(properties, Mapping):
                fields = cast("Mapping[str, object]", properties)
                form["properties"] = {name: self._field(each) for name, each in fields.items()}
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        return form

    def _field(self, given: object) -> object:
        schema = self._flattened(given)
        if not schema:
            return given
        items = schema.pop("items", None)
        choices = self._choices(schema)
        if choices:
            for key in (*_COMBINED, "const", "enum", "enumNames", "type"):
                schema.pop(key, None)
            schema |= _typed(choices)
        elif isinstance(schema.get("type", "string"), str):
            schema.setdefault("type", _implied(schema, items))
        if schema.get("type", "string") not in _KINDS:
            return schema
        chosen = {key: schema.pop(key) for key in ("oneOf", "enum") if key in schema}
        field = protocol_field(schema) | chosen
        if "pattern" in schema:  # the terminal checks it
            field["pattern"] = schema["pattern"]
        if items is not None:
            field["items"] = self._items(items)
        if choices and "type" not in schema:  # values of several types
            field.pop("type", None)
        return field

    def _items(self, given: object) -> object:
        field = self._field(given)
        if not isinstance(field, dict):
            return given
        items = cast("dict[str, Any]", field)
        if titled := items.get("oneOf"):
            return {"anyOf": titled}
        return {"enum": items["enum"]} if items.get("enum") else {"type": items["type"]}

    def _flattened(self, given: object) -> dict[str, Any]:
        """Merge a field's ``$ref``, ``allOf`` and best ``anyOf`` variant into its schema; drop null."""
        self._count(1)
        schema = dict(cast("Schema", given)) if isinstance(given, Mapping) else {}
        for each in (*_list(schema.pop("allOf", ())), self._target(schema.pop("$ref", None))):
            if each is not None:
                schema = self._flattened(each) | schema
        kinds = [kind for kind in _list(schema.get("type")) if kind != "null"]
        if kinds:
            schema["type"] = min(kinds, key=_rank)
        for key in _COMBINED:
            if key not in schema:
                continue
            variants = [self._flattened(each) for each in _list(schema.pop(key))]
            variants = [
                each
                for each in variants
                if each.get("type") != "null" and each.get("const", ...) is not None
            ]
            if variants and all(self._choices(each) for each in variants):
                schema[key] = variants
            elif variants:
                schema = min(variants, key=lambda each: _rank(each.get("type"))) | schema
        return schema

    def _choices(self, schema: Schema) -> list[Choice]:
        if "const" in schema:
            found = [{"const": schema["const"], "title": schema.get("title")}]
        elif "enum" in schema:
            values, names = _list(schema["enum"]), _list(schema.get("enumNames"))
            names += [None] * (len(values) - len(names))
            pairs = zip(values, names, strict=False)
            found = [{"const": value, "title": name} for value, name in pairs]
        else:
            variants = [each for key in _COMBINED for each in _list(schema.get(key))]
            found = [choice for each in variants for choice in self._choices(each)]
        self._count(len(found))
        return [each for each in found if isinstance(each["const"], str | int | float)]

    def _target(self, reference: object) -> object:
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return None
        found: Schema | None = self._root
        for part in reference.removeprefix("#/").split("/"):
            name = part.replace("~1", "/").replace("~0", "~")
            found = found.get(name) if isinstance(found, Mapping) else None
        return found

    def _count(self, parts: int) -> None:
        self._parts += parts
        if self._parts > MOST_PARTS:
            raise ValueError("it is too large")


def _typed(choices: list[Choice]) -> dict[str, Any]:
    values: list[object] = [each["const"] for each in choices]
    kinds: set[type] = {type(value) for value in values}
    if kinds == {bool}:
        only = {"const": values[0]} if len({*values}) == 1 else {}
        return {"type": "boolean", **only}
    typed: dict[str, Any] = {"enum": values}
    if any(each["title"] for each in choices):
        typed = {"oneOf": [{k: v for k, v in each.items() if v is not None} for each in choices]}
    if kinds == {str}:
        return {"type": "string", **typed}
    if kinds <= {int, float}:
        return {"type": "integer" if kinds == {int} else "number", **typed}
    return typed


def _implied(schema: Schema, items: object) -> str:
    if items is not None:
        return "array"
    if "properties" in schema or "additionalProperties" in schema:
        return "object"
    bounds = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
    return "number" if any(key in schema for key in bounds) else "string"


def _rank(kind: object) -> int:
    return _KINDS.index(kind) if kind in _KINDS else len(_KINDS)


def _list(value: object) -> list[Any]:
    """Return ``value`` as a list; a text becomes a list with one entry."""
    if isinstance(value, str):
        return [value]
    return list(cast("list[Any]", value)) if isinstance(value, list | tuple) else []

"""The fields of an MCP form: their labels, the values that they accept, and the reading of typed text.

The checks here tell the user about a mistake immediately. The server checks every answer again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, Literal, TypeAlias, cast

from pydantic import BaseModel, ConfigDict, JsonValue, model_validator
from pydantic.alias_generators import to_camel

from anabranch._schemas.foreign import has_format, matches
from anabranch._schemas.form_reading import FormReader
from anabranch._text import json_line, number_problem


class LeaveOut:
    """The type of :data:`LEAVE_OUT`."""


LEAVE_OUT: Final = LeaveOut()
"""Stands for the missing value of an optional field."""


class _Schema(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(
        frozen=True, alias_generator=to_camel, populate_by_name=True
    )


Value: TypeAlias = str | int | float | bool


class Option(_Schema):
    """One value of an enum: a text in the protocol, a text or a number in forms of some servers."""

    const: Value
    title: str | None = None

    @property
    def text(self) -> str:
        return self.const if isinstance(self.const, str) else json_line(self.const)

    @property
    def label(self) -> str:
        return self.title or self.text


class Options(_Schema):
    enum: tuple[Value, ...] = ()
    one_of: tuple[Option, ...] = ()
    any_of: tuple[Option, ...] = ()

    @property
    def options(self) -> tuple[Option, ...]:
        return self.one_of or self.any_of or tuple(Option(const=each) for each in self.enum)


class Items(Options):
    """The entries of a list: choices or, in forms of some servers, typed values."""

    type: Literal["string", "integer", "number"] = "string"


def between(least: object, most: object, unit: str) -> str:
    if least is not None and most is not None:
        return f"{least} to {most}{unit}"
    if least is not None:
        return f"at least {least}{unit}"
    return "" if most is None else f"at most {most}{unit}"


class Field(Options):
    """The schema of one field. Source: MCP 2026-07-28, ``PrimitiveSchemaDefinition``."""

    type: Literal["string", "integer", "number", "boolean", "array"] = "string"
    title: str | None = None
    description: str | None = None
    format: str | None = None
    pattern: str | None = None
    minimum: int | float | None = None
    maximum: int | float | None = None
    min_length: int | None = None
    max_length: int | None = None
    min_items: int | None = None
    max_items: int | None = None
    items: Items = Items()
    default: JsonValue = None

    @property
    def is_typed_list(self) -> bool:
        """Whether the field is a list whose entries the user writes as text."""
        return self.type == "array" and not self.items.options

    def label(self, name: str, *, required: bool) -> str:
        """Return the text of the prompt: the title, with notes on the field in brackets."""
        notes = [self.description, self.range() or self.format, None if required else "optional"]
        joined = "; ".join(note for note in notes if note)
        return f"{self.title or name} ({joined}):" if joined else f"{self.title or name}:"

    def in_words(self, *, required: bool, titled: bool = True) -> str:
        """Return a text about the values that the field accepts, after its title if ``titled``."""
        options = [
            option.text if option.title is None else f"{option.text} ({option.title})"
            for option in self.options or self.items.options
        ]
        kind = _KINDS.get(self.format or "", _KINDS[self.type])
        if self.is_typed_list:
            kind = "a list of texts" if self.items.type == "string" else "a list of numbers"
        if options:
            kind = f"{'any' if self.type == 'array' else 'one'} of: {', '.join(options)}"
        default = None if self.default is None else f"default {json_line(self.default)}"
        optional = None if required else "optional"
        title = self.title if titled else None
        notes = [title, self.description, kind, self.range(), default, optional]
        return "; ".join(note for note in notes if note)

    def range(self) -> str | None:
        for least, most, unit in (
            (self.minimum, self.maximum, ""),
            (self.min_length, self.max_length, " characters"),
            (self.min_items, self.max_items, " entries" if self.is_typed_list else " choices"),
        ):
            if words := between(least, most, unit):
                return words
        return None

    def read(self, text: str, *, required: bool) -> JsonValue | LeaveOut:
        """Return the value of a typed text; a ``ValueError`` has a message for the user."""
        if not text and not required:
            return LEAVE_OUT
        if self.type == "integer":
            return self._in_range(_number(text, int, "a whole number"))
        if self.type == "number":
            return self._in_range(_number(text, float, "a number"))
        return self._checked(text)

    def chosen(self, values: Sequence[Any], *, required: bool) -> list[Any] | LeaveOut:
        """Return the answer of a list for the chosen ``values``, or raise like :meth:`read`.

        Without chosen values, an optional list has no answer; if the user removed a default, it is empty.
        """
        if not values and not required and (self.min_items or not self.default):
            return LEAVE_OUT
        few = self.max_items is None or len(values) <= self.max_items
        if len(values) < (self.min_items or 0) or not few:
            raise ValueError(f"{'give' if self.is_typed_list else 'choose'} {self.range()}")
        return list(values)

    def listed(self, entries: Sequence[str], *, required: bool) -> list[Any] | LeaveOut:
        """Return the answer of a list for the typed ``entries``; blank entries do not count."""
        typed = [each.strip() for each in entries if each.strip()]
        kind = self.items.type
        if kind == "string":
            return self.chosen(typed, required=required)
        read, words = (int, "a whole number") if kind == "integer" else (float, "a number")
        values = [_number(each, read, f"{words}: {each}") for each in typed]
        return self.chosen(values, required=required)

    def _in_range(self, number: float) -> float:
        if self.minimum is not None and number < self.minimum:
            raise ValueError(f"must be {self.range()}")
        if self.maximum is not None and number > self.maximum:
            raise ValueError(f"must be {self.range()}")
        return number

    def _checked(self, text: str) -> str:
        if len(text) < (self.min_length or 0):
            raise ValueError(f"must have {self.range()}")
        if self.max_length is not None and len(text) > self.max_length:
            raise ValueError(f"must have {self.range()}")
        if self.pattern is not None and not matches(self.pattern, text):
            raise ValueError(f"must match {self.pattern}")
        if self.format is not None and not has_format(text, self.format):
            raise ValueError(f"not a valid {self.format}")
        return text


_KINDS = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "email": "an email address",
    "uri": "a URI",
    "date": "a date (YYYY-MM-DD)",
    "date-time": "a date and time (ISO 8601)",
}


class Form(_Schema):
    """The schema of a form: a flat object, read from the schema of any server."""

    properties: dict[str, Field] = {}
    required: frozenset[str] = frozenset()

    @model_validator(mode="before")
    @classmethod
    def _read(cls, given: object) -> object:
        if not isinstance(given, Mapping):
            return given
        return FormReader(cast("Mapping[str, Any]", given)).form()


def _number(text: str, kind: type[int | float], words: str) -> int | float:
    try:
        number = kind(text)
    except ValueError:
        is_long = kind is int and text.strip().lstrip("+-").isdecimal()
        raise ValueError(f"not {words} that can be sent" if is_long else f"not {words}") from None
    if number_problem(number) is not None:
        raise ValueError(f"not {words}")
    return number

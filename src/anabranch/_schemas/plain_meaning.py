"""Readers of arguments that a caller wrote in another type than the tool's schema asks for.

Models write a list as a text, for example. Users type all arguments as texts, ``name=value``.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, cast

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from anabranch._schemas.foreign import misfits
from anabranch._text import TooDeepError, read_json, read_json_at

_NAME = re.compile(r"\s*([^\s=]+=?)")
_QUOTED = re.compile(r"\"([^\"]*)\"|'([^']*)'")
_PLAIN = re.compile(r"\S*")

JSON_TYPES: dict[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
    type(None): "null",
}
LONGEST = 200
"""Maximum characters of typed text that an error repeats."""

_SCALARS: dict[str, TypeAdapter[Any]] = {
    "integer": TypeAdapter(int),
    "number": TypeAdapter(float, config=ConfigDict(allow_inf_nan=False)),
    "boolean": TypeAdapter(bool),
}
"""Readers of texts such as ``yes``, which tools accept for a boolean in other requests."""

WORDS = {
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "array": "a JSON list",
    "object": "a JSON object",
    "null": "null",
}


def as_meant(
    given: dict[str, Any], problems: Iterable[ErrorDetails]
) -> tuple[dict[str, Any], set[tuple[int | str, ...]]]:
    """Return ``given`` with problems converted where possible, and the places that were left out."""
    meant, left_out = copy.deepcopy(given), set[tuple[int | str, ...]]()
    for problem in problems:
        holder, place, value = _found(meant, problem["loc"])
        if holder is None:
            continue
        if isinstance(value, str) and value:
            holder[place] = _decoded(value, is_choice=problem["type"] in _CHOICES)
        elif type(value) in (int, float) and problem["type"] == "string_type":
            holder[place] = str(value)
        elif value in (None, "") and isinstance(holder, dict):
            del holder[place]
            left_out.add(problem["loc"])
    return meant, left_out


def _found(given: object, loc: Iterable[int | str]) -> tuple[Any, Any, object]:
    """Return the container, the key and the value at the place of a problem.

    A union adds a tag to the place, which is not a key of the value.
    """
    holder: Any = None
    place: Any = None
    value: object = given
    for step in loc:
        if not isinstance(value, dict | list):
            break
        inside = cast("Any", value)
        try:
            value = inside[step]
        except (KeyError, IndexError, TypeError):
            continue
        holder, place = inside, step
    return holder, place, cast("Any", value)


_CHOICES = frozenset({"literal_error", "enum"})


def _decoded(text: str, *, is_choice: bool) -> object:
    """Return the list, object, null or chosen number that a text holds as JSON; else the text."""
    try:
        decoded: object = read_json(text)
    except ValueError:
        return text
    if isinstance(decoded, str) or (isinstance(decoded, int | float) and not is_choice):
        return text
    return decoded


def read_pairs(pairs: Iterable[str], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of ``pairs`` by their names; a ``ValueError`` names all problems."""
    arguments: dict[str, Any] = {}
    problems: list[str] = []
    unread: set[str] = set()
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not (name and equals):
            problems.append(f"{pair!r} is no argument. Write name=value.")
        elif name in arguments:
            problems.append(f"{name!r} is given twice. Give it once.")
        else:
            arguments[name] = None  # an unreadable argument counts as given
            try:
                arguments[name] = _read_value(name, text, schema)
            except ValueError as problem:
                problems.append(str(problem))
                unread.add(name)
    if problems:
        # The tool would name values that do not fit, and does not run: name them here.
        read = {name: value for name, value in arguments.items() if name not in unread}
        wrong = (f"{name}: {why}." for name, why in misfits_of(read, schema))
        raise ValueError(" ".join([*problems, *wrong]))
    return arguments


def misfits_of(values: Mapping[str, Any], schema: Mapping[str, Any]) -> list[tuple[str, str]]:
    fields = {each: schema[each] for each in ("properties", "$defs") if each in schema}
    return misfits(fields, values)


def split_pairs(text: str) -> Iterator[str]:
    """Yield the pairs in a line of ``name=value name=value``, or raise ``ValueError``.

    A value with spaces is in quotes of either kind, or is a JSON list or object.
    """
    at = 0
    while (named := _NAME.match(text, at)) is not None:
        value, at = _value_at(text, named.end())
        yield f"{named[1]}{value}"


def _value_at(text: str, at: int) -> tuple[str, int]:
    begin = text[at : at + 1]
    if begin and begin in "[{":
        try:
            _, end = read_json_at(text, at)
        except ValueError as error:
            written = _python_list(text, at)
            if written is None:
                raise ValueError(f"{_shown(text[at:])} is not JSON: {error}") from None
            return written, at + len(written)
        return text[at:end], end
    if begin and begin in "\"'":
        quoted = _QUOTED.match(text, at)
        if quoted is None:
            raise ValueError(f"The quote before {text[at + 1 :]!r} does not end")
        return quoted[1] or quoted[2] or "", quoted.end()
    plain = _PLAIN.match(text, at)
    return ("", at) if plain is None else (plain[0], plain.end())


def _python_list(text: str, at: int) -> str | None:
    """Return the text of the list in Python's notation that begins at ``at``; ``None`` without one."""
    ends = (found.end() for found in re.finditer(r"\]", text[at : at + LONGEST]))
    for end in ends:
        with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            if isinstance(ast.literal_eval(text[at : at + end]), list):
                return text[at : at + end]
    return None


def _read_value(name: str, text: str, schema: Mapping[str, Any]) -> object:
    field = schema.get("properties", {}).get(name, {})
    types = set(_types(field, schema.get("$defs", {})))
    if types == {"string"}:
        return text
    try:
        value: object = read_json(text)
    except TooDeepError as error:
        raise ValueError(f"{name} cannot be read: {error}.") from None
    except ValueError:
        value = text
    if not types or _fits(value, types):
        return value
    if "string" in types:
        return text
    if not text and "default" in field:
        return field["default"]
    for kind, reader in _SCALARS.items():
        if kind in types:
            with suppress(ValidationError):
                return reader.validate_python(text)
    raise ValueError(_wrong(name, text, types))


def _types(field: object, definitions: Mapping[str, Any]) -> Iterator[str]:
    """Yield the JSON types that a field allows, each part read once; none if every type is allowed."""
    left, seen = [field], set[str]()
    while left:
        if not isinstance(part := left.pop(), dict):
            continue
        known = cast("dict[str, Any]", part)
        name = str(known.get("$ref", "")).rpartition("/")[2]
        if name not in seen:
            seen.add(name)
            left.append(definitions.get(name))
        declared: str | list[str] = known.get("type", [])
        yield from [declared] if isinstance(declared, str) else declared
        left += [each for choices in ("allOf", "anyOf", "oneOf") for each in known.get(choices, ())]
        if "type" not in known:
            values = (*known.get("enum", ()), *([known["const"]] if "const" in known else ()))
            yield from (JSON_TYPES[type(value)] for value in values)


def _fits(value: object, types: set[str]) -> bool:
    if type(value) is int and "number" in types:
        return True
    return JSON_TYPES[type(value)] in types


def _shown(text: str) -> str:
    return repr(text) if len(text) <= LONGEST else f"{text[:LONGEST]!r}…"


def _wrong(name: str, text: str, types: set[str]) -> str:
    wanted = " or ".join(words for kind, words in WORDS.items() if kind in types)
    return f"{name} must be {wanted}, not {_shown(text)}. Write {name}=… or give JSON."

"""Reads a model's reply: the arguments of its tool calls, and a structured answer.

A form that is no object, such as ``list[str]``, is sent as the only property of an object.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, cast

from pydantic import PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import from_json

from anabranch._asking.elicitation import describe
from anabranch._engine import Codec, drawn_codec, repeatable
from anabranch._text import answer_in, encodable
from anabranch.messages import SampleReply, ToolUseBlock

_SHOWN = 500


def tool_use(use_id: str, name: str, arguments: str | Mapping[str, Any] | None) -> ToolUseBlock:
    """Return the call with ``arguments`` as ``input``, or as ``malformed`` if they are not an object."""
    if isinstance(arguments, Mapping):
        return ToolUseBlock(id=use_id, name=name, input=dict(arguments))
    read = _object_in(arguments or "")
    if read is None:
        return ToolUseBlock(id=use_id, name=name, input={}, malformed=arguments)
    return ToolUseBlock(id=use_id, name=name, input=read)


def refusal(use: str, malformed: str) -> str:
    shown = malformed if len(malformed) <= _SHOWN else f"{malformed[:_SHOWN]}…"
    return (
        f"{use} was not run: its arguments must be one JSON object, and these are not: {shown}"
        f"\nCall {use} again with one object. For several calls, use the tool several times."
    )


def _object_in(text: str) -> dict[str, Any] | None:
    value: object = text
    for _ in range(2):  # an object, or one that was encoded twice
        if isinstance(value, str):
            try:
                value = from_json(value) if value.strip() else None
            except ValueError:
                return None
    if value is None:
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


SCHEMA_TOOL = "__schema__"
_ANSWER = "answer"
_OBJECT: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])


@dataclass(frozen=True, slots=True)
class WantedForm:
    """The type of a structured answer; ``drawn`` has the codec of defaults that differ each round."""

    adapter: TypeAdapter[Any]
    schema: dict[str, Any]
    tool_schema: dict[str, Any] = field(init=False)
    drawn: Codec | None = field(init=False)

    def __post_init__(self) -> None:
        tool = self.schema if self._is_object else _wrapped(self.schema)
        object.__setattr__(self, "tool_schema", tool)
        object.__setattr__(self, "drawn", drawn_codec(self.adapter))

    @property
    def _is_object(self) -> bool:
        return self.schema.get("type") == "object"

    def read(self, reply: SampleReply) -> tuple[Any, str | None]:
        given = [call for call in reply.tool_calls if call.name == SCHEMA_TOOL]
        try:
            if given and given[0].malformed is None:
                return self._arguments(given[0].arguments), None
            return answer_in(
                (given[0].malformed if given else None) or reply.text, self._text
            ), None
        except ValidationError as problem:
            return None, describe(problem)
        except ValueError as problem:
            return None, str(problem)

    def dump(self, value: Any) -> str:  # noqa: ANN401 - of any type
        # The value of an Iterable is a list here, and the type's own serializer would warn about
        # that.
        return self.adapter.dump_json(encodable(value), by_alias=True, warnings=False).decode()

    def _arguments(self, arguments: dict[str, Any]) -> Any:  # noqa: ANN401 - of any type
        if self._is_object:
            return self.adapter.validate_python(arguments)
        if len(arguments) != 1:
            return self.adapter.validate_python(arguments)  # one of several models, unwrapped
        (value,) = arguments.values()  # models give the property various names
        try:
            return self.adapter.validate_python(value)
        except ValidationError:
            if not isinstance(value, str):
                raise
            return self.adapter.validate_json(value)  # a list that is written as a text

    def _text(self, text: str) -> Any:  # noqa: ANN401 - of any type
        try:
            return self.adapter.validate_json(text)
        except ValidationError:
            if self._is_object:
                raise
            try:
                wrapped = _OBJECT.validate_json(text)
            except ValidationError:
                wrapped = {}
            if [*wrapped] != [_ANSWER]:
                raise
            return self._arguments(wrapped)


def wanted_form(schema: object) -> WantedForm:
    try:
        return _cached(schema)
    except TypeError:  # metadata that cannot be hashed
        return _made(schema)


def _made(schema: object) -> WantedForm:
    if isinstance(schema, dict):
        raise _refused(cast("object", schema), "a JSON Schema cannot be read as a type")
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(cast("Any", schema))
        adapter.validator = repeatable(adapter.core_schema, adapter.validator)
        return WantedForm(adapter, adapter.json_schema())
    except PydanticUserError as problem:
        raise _refused(schema, problem.message.splitlines()[0]) from problem


def _refused(schema: object, why: str) -> TypeError:
    return TypeError(
        "sample(schema=…) takes a model, or another type with a JSON Schema, such as list[str]; it"
        f" was given {schema!r}: {why}"
    )


_cached = lru_cache(maxsize=256)(_made)


def _wrapped(schema: dict[str, Any]) -> dict[str, Any]:
    inner = {name: value for name, value in schema.items() if name != "$defs"}
    wrapped: dict[str, Any] = {
        "type": "object",
        "properties": {_ANSWER: inner},
        "required": [_ANSWER],
    }
    return wrapped | ({"$defs": schema["$defs"]} if "$defs" in schema else {})

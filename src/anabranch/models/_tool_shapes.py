"""Changes names and schemas of tools as a provider requires, and restores names in replies.

A tool that cannot be shaped is left out: the provider would refuse every request with it.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, cast

from pydantic import JsonValue
from pydantic_ai.exceptions import UserError
from pydantic_ai.profiles import JsonSchemaTransformer
from pydantic_ai.tools import ToolDefinition
from pydantic_core import from_json, to_json

from anabranch._schemas import UnusableSchemaError
from anabranch.messages import ToolSpec
from anabranch.models._tool_schemas import Schema, folded, mapped, parts_of, without_recursion
from anabranch.tree import wire_name

logger: Final = logging.getLogger("anabranch.models")


@dataclass(frozen=True)
class _Rules:
    """A provider's limits on the tools of a request; Anthropic checks the top properties alone."""

    tool_name: re.Pattern[str] = re.compile(r"[a-zA-Z0-9_-]{1,64}")
    parameter: re.Pattern[str] = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
    most_tools: int | None = 128


# "tools.14.custom.input_schema.properties: Property keys should match pattern
# '^[a-zA-Z0-9_.-]{1,64}$'" (Anthropic, and Bedrock for its models; at the top only: appstore-connect-mcp#2,
# accelerated-intelligent-document-processing-on-aws#709). Neither has a limit for the number of tools.
_ANTHROPIC: Final = _Rules(most_tools=None)
# "Invalid 'tools': array too long. Expected an array with maximum length 128" (zed#32946). OpenAI's
# chat and responses, and most services with its interface.
_OPENAI: Final = _Rules()
# "Invalid function name. Must start with a letter or an underscore" (gemini-cli#2966); "At most 512
# function declarations can be specified" (gemini-cli#19083).
_GOOGLE: Final = _Rules(tool_name=re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}"), most_tools=512)
# A model on the user's machine is limited by its context alone.
_LOCAL: Final = _Rules(most_tools=None)
_PROVIDERS: Final[Mapping[str, _Rules]] = {
    "anthropic": _ANTHROPIC,
    "bedrock": _ANTHROPIC,
    "google": _GOOGLE,
    "google-cloud": _GOOGLE,
    "ollama": _LOCAL,
    "vllm": _LOCAL,
    "function": _LOCAL,
    "test": _LOCAL,
}


def _rules_of(provider: str) -> _Rules:
    return _PROVIDERS.get(provider, _OPENAI)


def most_tools(provider: str) -> int | None:
    return _rules_of(provider).most_tools


@dataclass(frozen=True)
class _Shaped:
    definition: ToolDefinition
    parameters: ParameterNames


@dataclass(frozen=True)
class ToolShapes:
    definitions: Sequence[ToolDefinition] = ()
    _own_names: Mapping[str, str] = field(default_factory=dict[str, str])
    _by_name: Mapping[str, _Shaped] = field(default_factory=dict[str, _Shaped])
    _rules: _Rules = _OPENAI

    def name(self, own: str) -> str:
        return _tool_name(own, self._rules)

    def sent(self, own: str, arguments: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        shape = self._by_name.get(self.name(own))
        return shape.parameters.sent(arguments) if shape else dict(arguments)

    def read(
        self, sent: str, arguments: Mapping[str, JsonValue]
    ) -> tuple[str, dict[str, JsonValue]]:
        shape = self._by_name.get(sent)
        own = shape.parameters.read(arguments) if shape else dict(arguments)
        return self._own_names.get(sent, sent), own


def shaped(
    tools: Sequence[ToolSpec],
    provider: str = "",
    transformer: type[JsonSchemaTransformer] | None = None,
) -> ToolShapes:
    """Return ``tools`` in the form that ``provider`` takes, without those that cannot be sent."""
    by_name: dict[str, _Shaped] = {}
    own_names: dict[str, str] = {}
    for tool in tools:
        schema = to_json(tool.input_schema)
        shape = _shaped(tool.name, tool.description, schema, provider, transformer)
        if shape is not None and shape.definition.name not in by_name:
            by_name[shape.definition.name] = shape
            own_names[shape.definition.name] = tool.name
    definitions = [shape.definition for shape in by_name.values()]
    return ToolShapes(definitions, own_names, by_name, _rules_of(provider))


@lru_cache(maxsize=1_000)
def _shaped(
    name: str,
    description: str,
    schema: bytes,
    provider: str,
    transformer: type[JsonSchemaTransformer] | None,
) -> _Shaped | None:
    rules = _rules_of(provider)
    try:
        made, choices = folded(from_json(schema))
        parameters = ParameterNames(made, rules.parameter)
        made = parameters.schema
        if transformer is not None and "$ref" in transformer(made, strict=None).walk():
            # A transformer that inlines would put a reference at the top.
            made = without_recursion(made)
    except (UnusableSchemaError, UserError) as error:
        logger.warning("the tool %r is left out: no provider takes its schema: %s", name, error)
        return None
    text = " ".join(each for each in (description, choices) if each)
    definition = ToolDefinition(
        name=_tool_name(name, rules), description=text or None, parameters_json_schema=made
    )
    return _Shaped(definition, parameters)


def _tool_name(own: str, rules: _Rules) -> str:
    name = wire_name(own)
    return name if rules.tool_name.fullmatch(name) else _with_digest(f"_{name}", own)


_ALTERNATIVES = ("allOf", "anyOf", "oneOf")
_CONDITIONS = ("if", "then", "else")


class ParameterNames:
    """The parameter names of one tool, and those that replace them for the provider."""

    def __init__(self, schema: Schema, allowed: re.Pattern[str]) -> None:
        self._wire = _wire_names(_names_in(schema), allowed)
        self._own = {wire: own for own, wire in self._wire.items()}
        self._unchanged = schema
        self.schema: Schema = _renamed(schema, self._wire) if self._wire else schema

    def sent(self, arguments: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        return _Keys(self._unchanged, self._wire).renamed(arguments)

    def read(self, arguments: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        return _Keys(self.schema, self._own).renamed(arguments)


def _names_in(schema: object) -> Iterator[str]:
    waiting: list[object] = [schema]
    while waiting:
        part = waiting.pop(0)
        if isinstance(part, dict):
            yield from cast("Schema", part).get("properties", ())
            waiting += parts_of(cast("Schema", part))


def _wire_names(names: Iterable[str], allowed: re.Pattern[str]) -> dict[str, str]:
    # One replacement for each name in the whole schema, so that alternatives agree.
    given = dict.fromkeys(names)
    taken = {name for name in given if allowed.fullmatch(name)}
    made: dict[str, str] = {}
    for own in given:
        if own not in taken:
            plain = re.sub(r"[^a-zA-Z0-9_.-]+", "_", own).strip("_")
            fits = allowed.fullmatch(plain) and plain not in taken
            made[own] = plain if fits else _with_digest(plain, own)
            taken.add(made[own])
    return made


def _with_digest(name: str, own: str) -> str:
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
    """Renames the keys of arguments that are properties; the model chooses the keys of a mapping."""

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

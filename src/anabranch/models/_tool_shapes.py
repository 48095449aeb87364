"""Shapes names and schemas of tools for their provider, and reads the names in its replies.

For one tool that it does not take, a provider refuses every request of a conversation. So a tool
that cannot be shaped is left out, with a warning in the log, and the other tools work.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from pydantic import JsonValue
from pydantic_ai.exceptions import UserError
from pydantic_ai.profiles import JsonSchemaTransformer
from pydantic_ai.tools import ToolDefinition
from pydantic_core import from_json, to_json

from anabranch.messages import ToolSpec
from anabranch.models._parameter_names import ParameterNames, with_digest
from anabranch.models._tool_schemas import UnusableSchemaError, folded, without_recursion
from anabranch.tree import wire_name

logger: Final = logging.getLogger("anabranch.models")


@dataclass(frozen=True)
class _Rules:
    """The tools that a provider takes.

    Attributes:
        tool_name: the names of tools; all have passed :func:`wire_name` before.
        parameter: the names of properties. Anthropic checks the properties at the top of a schema,
            other providers check all.
        most_tools: the maximum tools in a request; ``None`` for no limit.
    """

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
    """Return the maximum tools in a request to ``provider``, or ``None`` for no limit."""
    return _rules_of(provider).most_tools


@dataclass(frozen=True)
class _Shaped:
    definition: ToolDefinition
    parameters: ParameterNames


@dataclass(frozen=True)
class ToolShapes:
    """The tools of a request in the form that their provider takes.

    Attributes:
        definitions: the tools that can be sent.
    """

    definitions: Sequence[ToolDefinition] = ()
    _own_names: Mapping[str, str] = field(default_factory=dict[str, str])
    _by_name: Mapping[str, _Shaped] = field(default_factory=dict[str, _Shaped])
    _rules: _Rules = _OPENAI

    def name(self, own: str) -> str:
        """Return the name for the tool ``own`` in requests to the provider."""
        return _tool_name(own, self._rules)

    def sent(self, own: str, arguments: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """Return the arguments of an earlier call under the names for the provider."""
        shape = self._by_name.get(self.name(own))
        return shape.parameters.sent(arguments) if shape else dict(arguments)

    def read(
        self, sent: str, arguments: Mapping[str, JsonValue]
    ) -> tuple[str, dict[str, JsonValue]]:
        """Return the tool's own name, and the arguments under their own names, for a call in a reply."""
        shape = self._by_name.get(sent)
        own = shape.parameters.read(arguments) if shape else dict(arguments)
        return self._own_names.get(sent, sent), own


def shaped(
    tools: Sequence[ToolSpec],
    provider: str = "",
    transformer: type[JsonSchemaTransformer] | None = None,
) -> ToolShapes:
    """Return ``tools`` in the form that ``provider`` takes, without those that cannot be sent.

    Args:
        tools: the tools.
        provider: pydantic-ai's name of the provider.
        transformer: the change that pydantic-ai will make to each schema.
    """
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
    """Return a tool in the form that ``provider`` takes, or ``None`` after a warning."""
    rules = _rules_of(provider)
    try:
        made, choices = folded(from_json(schema))
        parameters = ParameterNames(made, rules.parameter)
        made = parameters.schema
        if transformer is not None and "$ref" in transformer(made, strict=None).walk():
            made = without_recursion(
                made
            )  # a transformer that inlines would put a reference at the top
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
    return name if rules.tool_name.fullmatch(name) else with_digest(f"_{name}", own)

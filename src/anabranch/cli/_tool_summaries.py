"""The summary of a tool, without a call: parameters, questions, requirements, limits."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from shlex import quote
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from anabranch._schemas import Form, between
from anabranch.cli._options import ReachOptions
from anabranch.cli._output import counted
from anabranch.cli._targets import check_reach, is_server, load, no_such_tool
from anabranch.tool import Tool

if TYPE_CHECKING:
    import mcp_types as types
    from mcp import Client

Schema: TypeAlias = Mapping[str, Any]

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
"""Maximum variants that are described, at each level of a schema."""


def schema_words(schema: object, definitions: Schema, *, depth: int = 0) -> str:
    """Return the values that ``schema`` accepts in words; "any value" for an unknown form."""
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
    notes = [between(schema.get(low), schema.get(high), unit) for low, high, unit in _BOUNDS]
    if "pattern" in schema:
        notes.append(f"matching {schema['pattern']}")
    return ", ".join([words, *(note for note in notes if note)])


LONGEST_DEFAULT = 20
WIDEST = 48
"""Maximum columns of the calls, to the left of the descriptions."""


@dataclass(frozen=True, slots=True)
class ToolSummary:
    """One tool of a target; ``questions`` is ``None`` if the target declares none."""

    name: str
    description: str
    parameters: Schema
    questions: Mapping[str, Schema] | None = None
    requires: tuple[str, ...] = ()
    limits: Mapping[str, float] = field(default_factory=dict[str, float])
    annotations: Mapping[str, bool] = field(default_factory=dict[str, bool])

    def to_json(self) -> dict[str, object]:
        return asdict(self)

    @property
    def headline(self) -> str:
        return self.description.strip().partition("\n")[0]

    @property
    def usage(self) -> str:
        required = self.parameters.get("required", ())
        fields = self.parameters.get("properties", {})
        return " ".join(
            f"{name}=…" if name in required else f"[{name}={_default(fields[name])}]"
            for name in fields
        )

    def lines(self) -> Iterator[str]:
        yield f"{self.name} {self.usage}".rstrip()
        yield from (f"  {line}".rstrip() for line in self.description.strip().splitlines())
        yield from _section("Parameters", self._parameters())
        yield from _section("Asks", self._questions())
        yield from _section("Needs a client that offers", self.requires)
        yield from _section("Limits", (f"{name}: {value}" for name, value in self.limits.items()))
        said = (name.replace("_", " ") for name, value in self.annotations.items() if value)
        yield from _section("Is", said)

    def _parameters(self) -> Iterator[str]:
        definitions = self.parameters.get("$defs", {})
        required = self.parameters.get("required", ())
        for name, schema in self.parameters.get("properties", {}).items():
            notes = [schema_words(schema, definitions)]
            if isinstance(schema, Mapping):
                given = cast("Schema", schema)
                if "default" in given:
                    notes.append(f"default {json.dumps(given['default'], ensure_ascii=False)}")
                elif name not in required:
                    notes.append("optional")
                if "description" in given:
                    notes.append(str(given["description"]))
            yield f"{name}: {'; '.join(notes)}"

    def _questions(self) -> Iterator[str]:
        for key, schema in (self.questions or {}).items():
            form = Form.model_validate(schema)
            yield key
            for name, each in form.properties.items():
                yield f"  {name}: {each.in_words(required=name in form.required, titled=False)}"


def _default(schema: object) -> str:
    if not isinstance(schema, Mapping) or cast("Schema", schema).get("default") is None:
        return "…"
    default: object = cast("Schema", schema)["default"]
    typed = default if isinstance(default, str) else json.dumps(default, ensure_ascii=False)
    return typed if 0 < len(typed) <= LONGEST_DEFAULT else "…"


def _section(title: str, lines: Iterable[str]) -> Iterator[str]:
    found = list(lines)
    if found:
        yield ""
        yield f"  {title}"
        yield from (f"    {line}" for line in found)


async def summaries_of(target: str, reach: ReachOptions = ReachOptions()) -> list[ToolSummary]:
    if is_server(target):
        from anabranch._asking import Absent
        from anabranch.cli._connection import open_session, server_of

        return await open_session(target, server_of(target, reach=reach), Absent(), _listed)
    check_reach(target, reach)
    found = load([target])
    own = [_of_tool(tool) for tool in found.tools]
    servers = [[_of_listing(each) for each in await s.list_tools()] for s in found.servers]
    servers += [
        [_of_listing(each.to_mcp_tool()) for each in await s.list_tools()] for s in found.fastmcp
    ]
    return [*own, *(each for listed in servers for each in listed)]


def overview(target: str, tools: Sequence[ToolSummary]) -> str:
    if not tools:
        return f"{target} offers no tools."
    calls = [f"{each.name} {each.usage}".rstrip() for each in tools]
    width = min(max(map(len, calls)), WIDEST)
    lines = [
        f"  {call:{width}}  {each.headline}".rstrip()
        for call, each in zip(calls, tools, strict=True)
    ]
    number = counted(len(tools), "tool")
    place = quote(target)
    hint = f"anabranch inspect {place} TOOL shows a tool, anabranch call {place} TOOL calls it."
    return "\n".join([f"{target} offers {number}:", "", *lines, "", hint])


def chosen(tools: Iterable[ToolSummary], target: str, name: str) -> ToolSummary:
    by_name = {each.name: each for each in tools}
    if name not in by_name:
        raise no_such_tool(target, name, by_name)
    return by_name[name]


async def _listed(client: Client) -> list[ToolSummary]:
    from anabranch.mcp import list_tools

    return [_of_listing(each) for each in (await list_tools(client)).values()]


def _of_tool(tool: Tool[Any]) -> ToolSummary:
    hints = asdict(tool.annotations) if tool.annotations is not None else {}
    return ToolSummary(
        tool.name,
        tool.description,
        tool.input_schema,
        {each.key: each.schema for each in tool.elicits},
        tuple(sorted(tool.requires)),
        {name: value for name, value in asdict(tool.limits).items() if value is not None},
        {name: value for name, value in hints.items() if value is not None},
    )


def _of_listing(tool: types.Tool) -> ToolSummary:
    names = ("read_only", "destructive", "idempotent", "open_world")
    said = {name: getattr(tool.annotations, f"{name}_hint", None) for name in names}
    return ToolSummary(
        tool.name,
        tool.description or "",
        tool.input_schema,
        annotations={name: value for name, value in said.items() if value is not None},
    )

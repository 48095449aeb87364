"""Tools of other servers with any name and schema: no provider refuses a request because of one."""

import json
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from anabranch import ToolSpec, assistant, user
from anabranch.messages import SampleRequest, TextBlock, ToolResultBlock, ToolUseBlock
from anabranch.models import ModelError, open_model
from tests.models.provider_rules import messages_faults
from tests.models.provider_server import Call, Provider, Say
from tests.randomised import examples

ANTHROPIC, OPENAI, OLLAMA = "anthropic:claude-sonnet-4-6", "openai:gpt-4o", "ollama:qwen3"
everywhere = pytest.mark.parametrize("model", [ANTHROPIC, OPENAI, OLLAMA])

LONG = "settings__approved__or__denied__countries__or__regions__approved__list"
TEXT: dict[str, Any] = {"type": "string"}
NUMBER: dict[str, Any] = {"type": "integer"}
GOOD = ToolSpec(name="look", input_schema={"type": "object", "properties": {"at": TEXT}})


def object_of(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


SCHEMAS: dict[str, dict[str, Any]] = {
    "alternatives": {"oneOf": [object_of("page", page=TEXT), object_of("block", block=TEXT)]},
    "alternatives beside properties": object_of("a", a=TEXT) | {"anyOf": [{"required": ["a"]}, {}]},
    "parts": {"allOf": [object_of("a", a=TEXT), {"$ref": "#/definitions/b"}]}
    | {"definitions": {"b": object_of("b", b=NUMBER)}},
    "a reference": {"$ref": "#/$defs/a", "$defs": {"a": object_of("a", a=TEXT)}},
    "itself": object_of(child={"$ref": "#"}) | {"anyOf": [{"$ref": "#"}, {"required": ["child"]}]},
    "nothing": {},
    "null": {"type": ["object", "null"]},
    "a condition": object_of(a=TEXT) | {"if": {"required": ["a"]}, "then": object_of(b=TEXT)},
    "what it is not": object_of(a=TEXT) | {"not": {"required": ["b"]}, "enum": [{"a": "x"}]},
    "names": object_of("$top", "$top", **{"filter[status]": TEXT, "$top": NUMBER, LONG: TEXT}),
    "like names": object_of(**{"a[b]": TEXT, "a(b)": TEXT, "a_b": TEXT, "": TEXT, "日本": TEXT}),
    "a referenced property": object_of(**{"$a": TEXT, "b": {"$ref": "#/properties/$a"}}),
    "lists of anything": object_of(a={"type": "array"}, b={"type": ["array", "null"]}),
    "draft 4": {"$schema": "http://json-schema.org/draft-04/schema#", "id": "x"}
    | object_of(a={"type": "number", "minimum": 0, "exclusiveMinimum": True})
    | {"definitions": {}},
    "draft 4 tuples": object_of(a={"type": "array", "items": [TEXT, NUMBER]}),
    "draft 3": object_of(a=TEXT | {"required": True}, b={"type": "any"}),
    "nulls": object_of(a=TEXT | {"enum": None, "description": None}) | {"description": None},
    "a lost reference": object_of(a={"$ref": "#/$defs/none"}, b={"$ref": "https://x.org/y.json"}),
}
UNUSABLE: dict[str, dict[str, Any]] = {
    "a text": {"type": "string"},
    "alternatives, none an object": {"oneOf": [TEXT, NUMBER]},
    "no schema": {"type": "object", "properties": {"a": "string"}},
    "no type": {"type": "object", "properties": {"a": {"type": "str"}}},
}


@everywhere
async def test_a_request_is_accepted_with_any_tool_schemas(
    provider: Provider, model: str, caplog: pytest.LogCaptureFixture
) -> None:
    tools = [
        ToolSpec(name=f"t {name}", input_schema=schema)
        for name, schema in (SCHEMAS | UNUSABLE).items()
    ]
    provider.will(Say("ok"))
    request = SampleRequest(messages=(user("hi"),), max_tokens=9, tools=(*tools, GOOD, GOOD))
    assert (await open_model(model).sample(request)).text == "ok"
    assert len(provider.bodies[0]["tools"]) == len(SCHEMAS) + 1
    left_out = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert len(left_out) == len(UNUSABLE)
    assert all(any(name in text for text in left_out) for name in UNUSABLE)


@everywhere
async def test_parameters_are_renamed_in_both_directions(provider: Provider, model: str) -> None:
    own: dict[str, Any] = {"filter[status]": "open", "$top": 3, LONG: "a"}
    tool = ToolSpec(name="list", input_schema=SCHEMAS["names"])
    used = ToolUseBlock(id="u1", name="list", input=own)
    result = ToolResultBlock(tool_use_id="u1", content=(TextBlock(text="none"),))
    request = SampleRequest(
        messages=(user("hi"), assistant([used]), user([result])), max_tokens=9, tools=(tool,)
    )
    provider.will(Say("ok"))
    await open_model(model).sample(request)
    sent = json.dumps(provider.bodies[0])
    wire = {"filter_status": "closed", "top": 2}
    # Once in the schema, once in the call.
    assert all(f'"{name}' in sent.replace("\\", "") for name in wire)
    assert '"$top":' not in sent.replace("\\", "")
    provider.will(Say("", (Call("c1", "list", wire),)))
    reply = await open_model(model).sample(request)
    assert reply.tool_calls[0].arguments == {"filter[status]": "closed", "$top": 2}


@everywhere
async def test_nested_parameters_are_renamed_in_both_directions(
    provider: Provider, model: str
) -> None:
    """A definition that is used twice, and keys that the model chooses."""
    part = {"$ref": "#/$defs/part"}
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            "all": {"type": "array", "items": part},
            "own": {"additionalProperties": part},
        },
        "$defs": {"part": {"type": "object", "properties": {"in[0]": TEXT}, "required": ["in[0]"]}},
    }
    own: dict[str, Any] = {"all": [{"in[0]": "a"}], "own": {"in_0": {"in[0]": "b"}}}
    wire: dict[str, Any] = {"all": [{"in_0": "a"}], "own": {"in_0": {"in_0": "b"}}}
    tool = ToolSpec(name="put", input_schema=schema)
    used = ToolUseBlock(id="u1", name="put", input=own)
    result = ToolResultBlock(tool_use_id="u1", content=(TextBlock(text="put"),))
    messages = (user("hi"), assistant([used]), user([result]))
    request = SampleRequest(messages=messages, max_tokens=9, tools=(tool,))
    provider.will(Say("", (Call("c1", "put", wire),)))
    reply = await open_model(model).sample(request)
    assert reply.tool_calls[0].arguments == own
    sent = json.dumps(provider.bodies[0]).replace("\\", "").replace(" ", "")
    assert json.dumps(wire).replace(" ", "") in sent
    assert '"required":["in_0"]' in sent
    assert '"in[0]":' not in sent


async def test_a_model_is_told_which_arguments_go_together(provider: Provider) -> None:
    tool = ToolSpec(name="move", description="Move.", input_schema=SCHEMAS["alternatives"])
    provider.will(Say("ok"))
    await open_model(ANTHROPIC).sample(
        SampleRequest(messages=(user("hi"),), max_tokens=9, tools=(tool,))
    )
    [sent] = provider.bodies[0]["tools"]
    assert sent["input_schema"]["properties"].keys() == {"page", "block"}
    assert sent["description"] == "Move. Give the arguments of one alternative: page; block."


@pytest.mark.parametrize(("model", "most"), [(ANTHROPIC, None), (OPENAI, 128), (OLLAMA, None)])
async def test_more_tools_than_the_provider_accepts_are_refused_before_the_request(
    provider: Provider, model: str, most: int | None
) -> None:
    tools = tuple(GOOD.model_copy(update={"name": f"look_{number}"}) for number in range(180))
    request = SampleRequest(messages=(user("hi"),), max_tokens=9, tools=tools)
    provider.will(Say("ok"))
    if most is None:
        assert (await open_model(model).sample(request)).text == "ok"
        return
    with pytest.raises(ModelError, match=r"openai takes at most 128 tools, got 180\. Choose some"):
        await open_model(model).sample(request)
    assert not provider.bodies


INNER = {"type": "object", "properties": {"f[g]": NUMBER}, "additionalProperties": NUMBER}
LISTED = {"type": "array", "items": {"anyOf": [{"type": "null"}, INNER]}, "prefixItems": [TEXT]}
LETTERS: list[Any] = [TEXT, True, {}, {"enum": ["x", "y"]}, {"type": ["string", "null"]}]
NAMED: dict[str, list[Any]] = {
    "a": LETTERS, "b": [NUMBER], "$c": LETTERS, "d[e]": [NUMBER, True], "h": [INNER, LISTED, True],
}  # fmt: skip
NAMES = st.sampled_from([*NAMED])
PROPERTIES = {name: st.sampled_from(schemas) for name, schemas in NAMED.items()}
OBJECTS = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["object", ["object", "null"]]),
        "properties": st.fixed_dictionaries({}, optional=PROPERTIES),
        "required": st.lists(NAMES, max_size=2, unique=True),
        "additionalProperties": st.sampled_from([False, True, NUMBER]),
        "patternProperties": st.just({"^b": NUMBER}),
    },
)
REFERENCES = st.builds(lambda ref: {"$ref": ref}, st.sampled_from(["#/$defs/one", "#/$defs/two"]))
TOPS = st.recursive(
    OBJECTS | REFERENCES | st.sampled_from([TEXT, {"type": "null"}]),
    lambda inner: st.builds(
        lambda base, key, parts: base | {key: parts},
        OBJECTS,
        st.sampled_from(["allOf", "anyOf", "oneOf"]),
        st.lists(inner, min_size=1, max_size=3),
    ),
    max_leaves=6,
)
WHOLE = st.builds(
    lambda top, one, two: top | {"$defs": {"one": one, "two": two}}, TOPS, OBJECTS, OBJECTS
)
ARGUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "a": st.just("x"),
        "b": st.just(1),
        "$c": st.just("y"),
        "d[e]": st.just(2),
        "h": st.sampled_from([{"f[g]": 3, "f.": 4}, ["z", {"f[g]": 5}, None]]),
    },
)


@given(schema=WHOLE, arguments=ARGUMENTS)
@examples(500, gate=50)
def test_a_folded_schema_accepts_all_arguments_of_the_tool(
    schema: dict[str, Any], arguments: dict[str, Any]
) -> None:
    """Imported here: the extra takes a second to import, and the rules apply to any schema."""
    from anabranch.models._tool_shapes import shaped

    shapes = shaped([ToolSpec(name="t", input_schema=schema)])
    fits = Draft202012Validator(schema).is_valid(arguments)
    if not shapes.definitions:
        assert not fits
        return
    sent = shapes.definitions[0].parameters_json_schema
    tools = [{"name": "t", "input_schema": sent}]
    hi = {"role": "user", "content": "hi"}
    assert messages_faults({"max_tokens": 1, "messages": [hi], "tools": tools}) == []
    wire = shapes.sent("t", arguments)
    assert shapes.read("t", wire) == ("t", arguments)
    assert not fits or Draft202012Validator(sent).is_valid(wire)

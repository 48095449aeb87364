"""Hostile JSON Schemas: a check by any schema of another server ends.

Without the bounds of the checks, most of these checks would take years; the timeout of the tests
would end them.
"""

import math
import socket
from contextlib import suppress
from typing import Any

import mcp_types as types
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from mcp.server.lowlevel import Server

from anabranch._schemas import Field, UnusableSchemaError, check_schema, matches, misfit, misfits
from anabranch.agents import Agent, RemoteTools
from anabranch.messages import text_of
from anabranch.stores import open_tree_store
from anabranch.testing import MockModel, calls
from tests.randomised import examples

ENDLESS = "^(a+)+$"
NEARLY = "a" * 40 + "!"


def doubled(keyword: str, leaf: dict[str, Any], levels: int = 60) -> dict[str, Any]:
    """Return a small schema whose evaluation takes 2 ** levels steps."""
    definitions: dict[str, Any] = {"d0": leaf}
    for level in range(1, levels):
        definitions[f"d{level}"] = {keyword: [{"$ref": f"#/$defs/d{level - 1}"}] * 2}
    return {"$ref": f"#/$defs/d{levels - 1}", "$defs": definitions}


def nested(keyword: str, levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {keyword: schema}
    return schema


FULL = {f"{number}": number for number in range(20_000)}
HOSTILE: dict[str, tuple[dict[str, Any], Any]] = {
    "pattern": ({"pattern": ENDLESS}, NEARLY),
    "pattern that looks ahead": ({"pattern": f"(?=({ENDLESS}))b"}, NEARLY),
    "pattern that counts": ({"pattern": "(a?){30000}b"}, "a" * 1_000),
    "pattern that counts twice": ({"pattern": "((a?){900}){900}b"}, "a" * 1_000),
    "pattern of a long text": ({"pattern": "(.*a){20}b"}, "a" * 1_000_000),
    "pattern of names": ({"patternProperties": {ENDLESS: False}}, {NEARLY: 1}),
    "pattern beside others": (
        {"patternProperties": {ENDLESS: True}, "additionalProperties": False},
        {NEARLY: 1},
    ),
    "names": ({"propertyNames": {"pattern": ENDLESS}}, {NEARLY: 1}),
    "dialect within": (
        {"items": {"$schema": "http://json-schema.org/draft-07/schema#", "pattern": ENDLESS}},
        [NEARLY],
    ),
    "another dialect": (
        {"$schema": "http://json-schema.org/draft-04/schema#", "pattern": ENDLESS},
        NEARLY,
    ),
    "unique numbers and lists": (
        {"uniqueItems": True},
        [*range(20_000), *([number] for number in range(20_000))],
    ),
    "all of all of": (doubled("allOf", {"type": "integer"}), 5),
    "any of any of": (doubled("anyOf", {"type": "integer"}), "five"),
    "not evaluated": (doubled("anyOf", {}) | {"unevaluatedProperties": False}, {"x": 1}),
    "a loop": ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, 5),
    "a schema of schemas": (
        {"items": {"$ref": "https://json-schema.org/draft/2020-12/schema"}},
        [{"type": "string"}] * 20_000,
    ),
    "deep": (nested("not", 5_000), 5),
    "wide": ({"allOf": [{"type": "integer"}] * 90_000}, 5),
    "wide and full": ({"allOf": [{"additionalProperties": {"type": "integer"}}] * 10_000}, FULL),
    "a number that no float is": ({"multipleOf": 0.5}, 10**400),
    "an address that is none": ({"$ref": "http://["}, 5),
    "a name that is none": ({"$schema": "http://[", "type": "string"}, 5),
    "equal to much": ({"allOf": [{"const": FULL}] * 3_000}, FULL),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_check_by_a_hostile_schema_ends(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anabranch._schemas.foreign.SHARE", 0.02)
    schema, value = HOSTILE[case]
    with suppress(UnusableSchemaError):
        misfit(schema, value)
    misfits({"properties": {"x": schema}}, {"x": value})


@pytest.mark.parametrize(
    ("schema", "value", "reason"),
    [
        ({"pattern": "^[a-z]+$"}, "ABC", "'ABC' does not match '^[a-z]+$'"),
        ({"pattern": "^(?!b)"}, "b", None),  # an automaton has no lookahead
        ({"uniqueItems": True}, [1, 1.0], "[1, 1.0] has non-unique elements"),
        ({"uniqueItems": True}, [1, True, "1", None, [1], {"a": 1}], None),
        ({"uniqueItems": True}, [{"a": 1, "b": 2}, {"b": 2, "a": 1.0}], "non-unique"),
        (
            {"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "null"}]},
            [1],
            "1 is not of type 'null'",
        ),
    ],
)
def test_every_checkable_keyword_is_checked(
    schema: dict[str, Any], value: Any, reason: str | None
) -> None:
    found = misfit(schema, value)
    assert found == reason or (found is not None and reason is not None and reason in found)


def test_a_long_reason_keeps_its_end() -> None:
    found = misfit({"type": "integer"}, "a" * 10_000)
    assert found is not None
    assert len(found) < 400
    assert found.endswith("is not of type 'integer'")


def test_a_reference_never_leaves_the_process() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/schema"
        with pytest.raises(UnusableSchemaError, match="Unresolvable"):
            misfit({"$ref": address}, 5)
        assert misfits({"properties": {"x": {"$ref": address}}}, {"x": 5}) == []
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_the_check_of_a_form_at_the_terminal_ends() -> None:
    field = Field.model_validate({"type": "string", "pattern": ENDLESS})
    with pytest.raises(ValueError, match="must match"):
        field.read(NEARLY, required=True)
    assert field.read("aaa", required=True) == "aaa"


async def test_a_result_of_another_server_does_not_block_the_event_loop() -> None:
    """The pattern is checked on the event loop, which serves other calls as well."""
    schema = {"type": "object", "properties": {"x": {"type": "string", "pattern": ENDLESS}}}

    async def listed(*_: object) -> types.ListToolsResult:
        shown = types.Tool(name="look", input_schema={"type": "object"}, output_schema=schema)
        return types.ListToolsResult(tools=[shown])

    async def called(*_: object) -> types.CallToolResult:
        text = types.TextContent(type="text", text="seen")
        return types.CallToolResult(content=[text], structured_content={"x": NEARLY})

    server: Server[Any] = Server("foreign", on_list_tools=listed, on_call_tool=called)
    model = MockModel(lambda request: calls(("m", "look", {})) if request.messages[-1].text else "")
    store = open_tree_store("memory:")
    async with RemoteTools(server) as remote:
        agent = Agent(store, model, tools=[remote])
        end = await agent.say((await agent.begin()).id, "Look")
    (result,) = (await store.path(end.id)).results.values()
    assert text_of(result.content).startswith("seen")
    assert "does not match" in text_of(result.content)
    await store.close()


# -- random ones -----------------------------------------------------------------------------------

TEXTS = st.text("ab!", max_size=30)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-3, 3) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
PATTERNS = st.recursive(
    st.sampled_from(["a", "b", ".", "[ab]", "\\w", "^", "$", "a{1,9}"]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("({0[0]}|{0[1]})".format),
        inner.map("({})+".format),
        inner.map("({})*".format),
        inner.map("({}){{1,99}}".format),
    ),
    max_leaves=10,
)
REFERENCES = st.sampled_from(["#", "#/$defs/a", "#/$defs/b", "#/$defs/gone"])
PLAIN = st.one_of(
    st.booleans(),
    st.fixed_dictionaries({}, optional={"type": st.sampled_from(["string", "integer", "array"])}),
    st.fixed_dictionaries({"const": VALUES}),
    st.fixed_dictionaries({"enum": st.lists(VALUES, min_size=1, max_size=3)}),
    st.fixed_dictionaries({"uniqueItems": st.booleans(), "maxItems": st.integers(0, 3)}),
    st.fixed_dictionaries({"minimum": st.integers(-3, 3)}),
    st.fixed_dictionaries({"minLength": st.integers(0, 9)}),
)


def combined(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.fixed_dictionaries(
                {},
                optional={
                    "allOf": st.lists(inner, min_size=1, max_size=3),
                    "anyOf": st.lists(inner, min_size=1, max_size=3),
                    "oneOf": st.lists(inner, min_size=1, max_size=3),
                    "not": inner,
                    "items": inner,
                    "properties": st.dictionaries(TEXTS, inner, max_size=3),
                    "additionalProperties": inner,
                    "propertyNames": inner,
                    "contains": inner,
                },
            )
        ),
        max_leaves=12,
    )


NUMBERS = st.sampled_from([0.5, 1e-320, 10**400, math.inf, math.nan])
ADDRESSES = st.sampled_from(
    ["http://[", "http://[::1", "#/%5B", "http://json-schema.org/draft-03/schema#"]
)
ENDING = combined(PLAIN)
WILD = combined(
    PLAIN
    | st.dictionaries(st.sampled_from(["multipleOf", "minimum", "const", "divisibleBy"]), NUMBERS)
    | st.dictionaries(st.sampled_from(["$ref", "$id", "$dynamicRef", "$anchor"]), ADDRESSES)
    | st.fixed_dictionaries({"$ref": REFERENCES})
    | st.fixed_dictionaries({"pattern": PATTERNS | TEXTS})
    | st.fixed_dictionaries({"patternProperties": st.dictionaries(PATTERNS, PLAIN, max_size=2)})
    | st.dictionaries(st.sampled_from(["type", "items", "$ref", "required", "$schema"]), VALUES)
)


@given(ENDING.filter(lambda each: isinstance(each, dict)), VALUES)
@examples(300, gate=40)
def test_without_patterns_and_references_the_bounded_check_agrees_with_jsonschema(
    schema: dict[str, Any], value: Any
) -> None:
    theirs: Any = Draft202012Validator(schema)
    assert (misfit(schema, value) is None) == theirs.is_valid(value)


@given(
    st.fixed_dictionaries({"a": WILD, "b": WILD}),
    WILD,
    VALUES | NUMBERS | st.lists(NUMBERS, max_size=3),
    st.dictionaries(st.sampled_from(["$schema", "$id"]), ADDRESSES),
)
@examples(300, gate=40)
def test_a_check_by_any_schema_ends_and_raises_no_other_error(
    definitions: dict[str, Any], schema: Any, value: Any, addresses: dict[str, str]
) -> None:
    whole = {**addresses, "$defs": definitions, "allOf": [schema]}
    with suppress(UnusableSchemaError):
        check_schema(whole)
        misfit(whole, value)
    misfits({"properties": {"x": whole}, "$defs": definitions}, {"x": value})


@given(PATTERNS, st.text("ab", max_size=2_000) | st.text(max_size=50))
@examples(300, gate=40)
def test_a_match_of_any_pattern_ends(pattern: str, text: str) -> None:
    matches(pattern, text)
    matches(pattern, text + "!")

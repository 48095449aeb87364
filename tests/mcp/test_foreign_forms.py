"""Forms of other projects' servers: every edge reads a field that a user could fill in alike."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from anabranch._schemas import Form
from anabranch.mcp._ask_page import form_page, read_form
from tests.cli.typist import DOWN, ENTER, SPACE, fill
from tests.randomised import examples

DEFINITIONS: dict[str, Any] = {
    "Size": {"title": "Size", "type": "string", "enum": ["s", "m"]},
    "Level": {"enum": [1, 2], "type": "integer"},
    "Loop": {"$ref": "#/$defs/Loop"},
    "Nested": {"type": "object", "properties": {}},
}
SIZES = {"type": "string", "enum": ["s", "m"]}
TITLED = [{"const": "s", "title": "Small"}, {"const": "m", "title": "Medium"}]

FIELDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "null": (
        {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}], "default": None},
        {"type": "integer", "minimum": 1, "default": None},
    ),
    "null in oneOf": ({"oneOf": [{"type": "null"}, {"type": "boolean"}]}, {"type": "boolean"}),
    "null among types": ({"type": ["null", "string"]}, {"type": "string"}),
    "null among choices": ({"enum": ["s", "m", None]}, SIZES),
    "reference": ({"$ref": "#/$defs/Size"}, {**SIZES, "title": "Size"}),
    "reference with a title": ({"$ref": "#/$defs/Size", "title": "S"}, {**SIZES, "title": "S"}),
    "reference in allOf": ({"allOf": [{"$ref": "#/$defs/Size"}]}, {**SIZES, "title": "Size"}),
    "reference or null": (
        {"anyOf": [{"$ref": "#/$defs/Size"}, {"type": "null"}], "title": "S"},
        {**SIZES, "title": "S"},
    ),
    "titles without a type": ({"oneOf": TITLED}, {"type": "string", "oneOf": TITLED}),
    "titles in anyOf": ({"anyOf": TITLED}, {"type": "string", "oneOf": TITLED}),
    "titles and null": (
        {"anyOf": [{"oneOf": TITLED}, {"type": "null"}]},
        {"type": "string", "oneOf": TITLED},
    ),
    "names beside": (
        {"type": "string", "enum": ["s", "m"], "enumNames": ["Small", "Medium"]},
        {"type": "string", "oneOf": TITLED},
    ),
    "constants": ({"anyOf": [{"const": "s"}, {"const": "m"}]}, SIZES),
    "choices without a type": ({"enum": ["s", "m"]}, SIZES),
    "numbers": ({"$ref": "#/$defs/Level"}, {"type": "integer", "enum": [1, 2]}),
    "numbers with titles": (
        {"oneOf": [{"const": 1, "title": "One"}, {"const": 2.5}]},
        {"type": "number", "oneOf": [{"const": 1, "title": "One"}, {"const": 2.5}]},
    ),
    "values of several types": ({"enum": ["auto", 1, True]}, {"enum": ["auto", 1, True]}),
    "both truths": ({"enum": [True, False]}, {"type": "boolean"}),
    "one truth": ({"const": True}, {"type": "boolean", "description": "must be true"}),
    "several": (
        {"type": "array", "items": {"$ref": "#/$defs/Size"}, "uniqueItems": True},
        {"type": "array", "items": {"enum": ["s", "m"]}},
    ),
    "several with titles": (
        {"items": {"oneOf": TITLED}},
        {"type": "array", "items": {"anyOf": TITLED}},
    ),
    "several or null": (
        {"anyOf": [{"type": "array", "items": {"enum": [1, 2]}}, {"type": "null"}]},
        {"type": "array", "items": {"enum": [1, 2]}},
    ),
    "texts": (
        {"type": "array", "items": {"type": "string", "title": "Tag"}},
        {"type": "array", "items": {"type": "string"}},
    ),
    "whole numbers": (
        {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"type": "null"}]}},
        {"type": "array", "items": {"type": "integer"}},
    ),
    "number or text": ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, {"type": "string"}),
    "object or text": ({"anyOf": [{"type": "object"}, {"type": "string"}]}, {"type": "string"}),
    "bounds alone": ({"minimum": 1}, {"type": "number", "minimum": 1}),
    "anything": ({"title": "Note"}, {"type": "string", "title": "Note"}),
    "requirements": (
        {"type": "integer", "exclusiveMinimum": 0, "multipleOf": 5},
        {"type": "integer", "minimum": 1, "description": "a multiple of 5"},
    ),
}


def form_of(field: object, *, required: bool = False) -> dict[str, Any]:
    names = ["x"] if required else []
    return {"type": "object", "properties": {"x": field}, "required": names, "$defs": DEFINITIONS}


def as_shown(schema: dict[str, Any]) -> dict[str, Any]:
    form = Form.model_validate(schema)
    dumped = form.model_dump(mode="json", by_alias=True, exclude_unset=True)
    shown: dict[str, Any] = dumped["properties"]["x"]
    return shown


@pytest.mark.parametrize("case", FIELDS)
def test_a_field_is_read_as_one_of_few_shapes(case: str) -> None:
    field, shown = FIELDS[case]
    read = as_shown(form_of(field))
    assert (read, [type(each) for each in read.get("enum", ())]) == (
        shown,
        [type(each) for each in shown.get("enum", ())],
    )
    assert as_shown(form_of(read)) == shown


@pytest.mark.parametrize(
    "field",
    [
        {"$ref": "#/$defs/Nested"},
        {"type": "object"},
        {"properties": {"a": {}}},
        {"anyOf": [{"type": "object"}, {"type": "null"}]},
        {"$ref": "#/$defs/Loop"},
        {"type": "array", "items": {"type": "object"}},
        {"type": "null"},
        True,
    ],
    ids=str,
)
def test_a_field_that_no_user_could_fill_in_is_refused(field: object) -> None:
    with pytest.raises(ValidationError):
        as_shown(form_of(field))


@pytest.mark.parametrize(
    ("field", "keys", "entered", "value"),
    [
        ({"$ref": "#/$defs/Level"}, DOWN + ENTER, ["2"], 2),
        ({"enum": ["auto", 1, True]}, DOWN + DOWN + ENTER, ["true"], True),
        ({"oneOf": TITLED}, DOWN + ENTER, ["m"], "m"),
        ({"type": "array", "items": {"enum": [1, 2]}}, SPACE + ENTER, ["1"], [1]),
        (
            {"type": "array", "items": {"type": "string"}},
            "a b, c" + ENTER,
            ["a b\r\nc"],
            ["a b", "c"],
        ),
        ({"type": "array", "items": {"type": "integer"}}, "1,2" + ENTER, ["1\r\n2\r\n"], [1, 2]),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "7" + ENTER, ["7"], 7),
    ],
    ids=str,
)
async def test_a_terminal_and_a_linked_page_return_the_same_value(
    field: dict[str, Any], keys: str, entered: list[str], value: object
) -> None:
    schema = form_of(field, required=True)
    assert [(await fill(schema, keys)).content, type(value)] == [{"x": value}, type(value)]
    form = Form.model_validate(schema)
    assert form_page("t", "?", form).status_code == 200
    assert read_form(form, {"field:x": entered}) == ({"x": value}, {})


@pytest.mark.parametrize(
    "definitions",
    [
        {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{m}"} for m in range(9)]} for n in range(9)},
        {"d0": {"enum": [*range(9_000)]}, "d1": {"anyOf": [{"$ref": "#/$defs/d0"}] * 9}},
    ],
    ids=["references", "choices"],
)
def test_reading_ends_when_references_multiply(definitions: dict[str, Any]) -> None:
    properties = {f"{n}": {"$ref": "#/$defs/d1"} for n in range(100)}
    with pytest.raises(ValidationError, match=r"too large|too deeply"):
        Form.model_validate({"properties": properties, "$defs": definitions})


KEYS = ["type", "enum", "const", "anyOf", "oneOf", "allOf", "items", "$ref", "title", "minimum"]
TEXTS = st.sampled_from(["string", "integer", "null", "array", "#/$defs/a", "#/$defs", "x"])
ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.floats() | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from([*KEYS, "description", "pattern", "maximum"]), inner)
    ),
    max_leaves=15,
)


@given(ANY, ANY)
@examples(500, gate=50)
def test_any_form_is_read_or_refused(field: object, definition: object) -> None:
    schema: Any = {"properties": {"x": field}, "$defs": {"a": definition}}
    try:
        form = Form.model_validate(schema)
    except ValidationError:
        return
    for each in form.properties.values():
        assert each.in_words(required=False)

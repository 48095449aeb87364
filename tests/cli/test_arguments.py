from typing import Any, Literal

import pytest
from pydantic import BaseModel, create_model

from anabranch._terminal import UsageError
from anabranch.cli._answering import read_arguments


class Place(BaseModel):
    town: str


def schema_of(annotation: Any) -> dict[str, Any]:
    return create_model("Arguments", x=(annotation, ...)).model_json_schema()


@pytest.mark.parametrize(
    ("annotation", "text", "value"),
    [
        (str, "5", "5"),
        (str, "", ""),
        (str, "a=b", "a=b"),
        (Literal["a", "b"], "a", "a"),
        (int, "-5", -5),
        (float, "5", 5),
        (float, "0.5", 0.5),
        (bool, "true", True),
        (list[str], '["a"]', ["a"]),
        (Place, '{"town": "Ulm"}', {"town": "Ulm"}),
        (int | None, "null", None),
        (str | None, "null", None),
        (str | None, "none", "none"),
        (str | None, "5", "5"),
        (int | str, "5", 5),
        (int | str, "five", "five"),
        (Literal[1, "one"], "1", 1),
        (Literal[1, "one"], "one", "one"),
        (Place | None, '{"town": "Ulm"}', {"town": "Ulm"}),
        (bool, "yes", True),
        (bool, "False", False),
        (bool, "0", False),
        (bool | None, "on", True),
        (int, "5.0", 5),
        (int, "+5", 5),
        (int | None, "1_000", 1000),
        (float, ".5", 0.5),
        (Any, "5", 5),
        (Any, "five", "five"),
    ],
)
def test_a_value_is_read_by_its_parameters_type(annotation: Any, text: str, value: object) -> None:
    assert read_arguments([f"x={text}"], None, schema_of(annotation)) == {"x": value}


@pytest.mark.parametrize("annotation", [int, bool, int | None, list[int], Place | None])
def test_an_empty_value_is_the_default_of_its_parameter(annotation: Any) -> None:
    schema = schema_of(annotation)
    schema["properties"]["x"]["default"] = None
    assert read_arguments(["x="], None, schema) == {"x": None}


@pytest.mark.parametrize(
    ("annotation", "text", "wanted"),
    [
        (int, "five", "a whole number"),
        (int, "5.5", "a whole number"),
        (int, "true", "a whole number"),
        (float, '"5"', "a number"),
        (bool, "5", "true or false"),
        (bool, "maybe", "true or false"),
        (int, "", "a whole number"),
        (float, "nan", "a number"),
        (list[int], "1,2", "a JSON list"),
        (Place, "Ulm", "a JSON object"),
        (int | None, "x", "a whole number or null"),
    ],
)
def test_a_text_of_another_type_is_refused_with_the_type(
    annotation: Any, text: str, wanted: str
) -> None:
    with pytest.raises(UsageError) as raised:
        read_arguments([f"x={text}"], None, schema_of(annotation))
    assert str(raised.value) == f"x must be {wanted}, not {text!r}. Write x=… or give JSON."


def test_schemas_of_other_servers_may_use_all_of_and_const() -> None:
    schema = {"properties": {"x": {"allOf": [{"type": "integer"}]}, "y": {"const": "go"}}}
    assert read_arguments(["x=5", "y=go"], None, schema) == {"x": 5, "y": "go"}


def test_a_typed_name_is_refused_when_it_is_no_parameter() -> None:
    with pytest.raises(UsageError, match="y: there is no such parameter; there are: x"):
        read_arguments(["x=1", "y=5"], None, schema_of(int))
    assert read_arguments(["x=1"], '{"y": 5}', schema_of(int)) == {"x": 1, "y": 5}


def test_pairs_override_json() -> None:
    given = read_arguments(["x=5"], '{"x": 1, "y": 2}', schema_of(int))
    assert given == {"x": 5, "y": 2}


@pytest.mark.parametrize("pair", ["x", "=5", ""])
def test_a_pair_without_a_name_or_a_sign_is_refused(pair: str) -> None:
    with pytest.raises(UsageError, match="is no argument"):
        read_arguments([pair], None, {})


def test_all_that_is_wrong_is_named() -> None:
    schema = {
        "properties": {
            "days": {"type": "integer"},
            "on": {"type": "boolean"},
            "name": {},
            "city": {},
        },
        "required": ["days", "city", "name"],
    }
    with pytest.raises(UsageError) as raised:
        read_arguments(["days=three", "on=maybe", "x", "way=by"], '{"name": "Ada"}', schema)
    assert str(raised.value) == (
        "days must be a whole number, not 'three'. Write days=… or give JSON. on must be true or"
        " false, not 'maybe'. Write on=… or give JSON. 'x' is no argument. Write name=value. city is"
        " missing. way: there is no such parameter; there are: days, on, name, city."
    )


@pytest.mark.parametrize(
    "schema", [{"properties": {}, "additionalProperties": True}, {}], ids=["others", "any"]
)
def test_no_parameter_is_called_unknown_if_others_may_be_given(schema: dict[str, object]) -> None:
    with pytest.raises(UsageError) as raised:
        read_arguments(["x", "way=by"], None, schema)
    assert str(raised.value) == "'x' is no argument. Write name=value."


def test_a_name_that_comes_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="'x' is given twice"):
        read_arguments(["x=1", "x=2"], None, {})


@pytest.mark.parametrize(
    ("text", "problem"), [("{", "--json is not JSON"), ("[1]", "--json must be a JSON object")]
)
def test_json_that_is_no_object_is_refused(text: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        read_arguments([], text, {})


RANGED: dict[str, Any] = {
    "properties": {
        "seats": {"type": "integer", "minimum": 1, "maximum": 9},
        "row": {"type": "integer"},
        "city": {"type": "string", "maxLength": 3},
    },
    "required": ["seats"],
}


def test_values_out_of_range_are_named_beside_those_that_cannot_be_read() -> None:
    with pytest.raises(UsageError) as caught:
        read_arguments(["seats=100", "row=five"], '{"city": "Rome", "row": 1}', RANGED)
    said = str(caught.value)
    assert "row must be a whole number, not 'five'" in said
    assert "seats: 100 is greater than the maximum of 9." in said
    assert "city: 'Rome' is too long." in said


def test_values_out_of_range_alone_are_the_servers_to_refuse() -> None:
    assert read_arguments(["seats=100"], None, RANGED) == {"seats": 100}


def test_the_types_of_an_argument_are_found() -> None:
    definitions = {
        f"d{each}": {"anyOf": [{"$ref": f"#/$defs/d{other}"} for other in range(50)]}
        for each in range(50)
    }
    fields: dict[str, Any] = {"x": {"$ref": "#/$defs/d0"}, "y": True}
    schema = {"properties": fields, "$defs": definitions}
    assert read_arguments(["x=5", "y=five"], None, schema) == {"x": 5, "y": "five"}

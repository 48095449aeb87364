"""Elicitations: which fields a form can show, checked when the question is defined."""

from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import AnyUrl, BaseModel, Field, RootModel, WithJsonSchema

from anabranch import Accepted, Cancelled, Declined, Elicitation
from anabranch._asking import form_schema
from anabranch._schemas import Form


class Meal(Enum):
    FISH = "fish"
    VEGAN = "vegan"


class Level(IntEnum):
    LOW = 1
    VERY_HIGH = 9


class Inner(BaseModel):
    x: int


def field_of(annotation: Any, default: Any = ...) -> dict[str, Any]:
    """Return the form's JSON schema of one field of this type."""
    model = type("Form", (BaseModel,), {"__annotations__": {"field": annotation}, "field": default})
    schema = form_schema(model)
    assert schema["type"] == "object"
    shown: dict[str, Any] = schema["properties"]["field"]
    return shown


@pytest.mark.parametrize(
    ("annotation", "shown"),
    [
        (str, {"type": "string"}),
        (Annotated[str, Field(min_length=1, max_length=9)], {"type": "string", "minLength": 1, "maxLength": 9}),
        (Annotated[int, Field(ge=1, le=9)], {"type": "integer", "minimum": 1, "maximum": 9}),
        (float, {"type": "number"}),
        (Decimal, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (date, {"type": "string", "format": "date"}),
        (datetime, {"type": "string", "format": "date-time"}),
        (AnyUrl, {"type": "string", "format": "uri", "minLength": 1}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Literal["only"], {"type": "string", "enum": ["only"]}),
        (Annotated[str, Field(title="Name", description="Yours")], {"type": "string", "title": "Name", "description": "Yours"}),
        (list[Literal["a", "b"]], {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}),
        (list[Literal["only"]], {"type": "array", "items": {"type": "string", "enum": ["only"]}}),
    ],
    ids=str,
)  # fmt: skip
def test_a_form_shows_flat_fields(annotation: Any, shown: dict[str, Any]) -> None:
    assert field_of(annotation) == shown


@pytest.mark.parametrize(
    ("annotation", "shown"),
    [
        (Annotated[int, Field(gt=0)], {"type": "integer", "minimum": 1}),
        (Annotated[int, Field(ge=3, lt=9)], {"type": "integer", "minimum": 3, "maximum": 8}),
        (Annotated[float, Field(gt=0.5)], {"type": "number", "minimum": 0.5, "description": "greater than 0.5"}),
        (Annotated[int, Field(multiple_of=5, examples=[5, 10])], {"type": "integer", "description": "a multiple of 5; for example 5, 10"}),
        (Annotated[int, Field(multiple_of=5, description="Seats")], {"type": "integer", "description": "Seats (a multiple of 5)"}),
        (Annotated[str, Field(pattern="^a")], {"type": "string", "description": "matches ^a"}),
        (Annotated[str, Field(deprecated=True)], {"type": "string", "description": "deprecated"}),
        (Annotated[float, Field(json_schema_extra={"unit": "kg"})], {"type": "number", "description": "unit: kg"}),
        (Literal[True], {"type": "boolean", "description": "must be true"}),
        (Literal[5], {"type": "string", "enum": ["5"]}),
        (Literal[1, 3], {"type": "string", "enum": ["1", "3"]}),
        (Literal[1, "all"], {"type": "string", "enum": ["1", "all"]}),
        (Level, {"type": "string", "oneOf": [{"const": "1", "title": "Low"}, {"const": "9", "title": "Very high"}]}),
        (list[Literal[1, 3]], {"type": "array", "items": {"type": "string", "enum": ["1", "3"]}}),
        (set[Literal["a", "b"]], {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}),
        (set[Meal], {"type": "array", "items": {"type": "string", "enum": ["fish", "vegan"]}}),
        (UUID, {"type": "string", "description": "format uuid"}),
        (time, {"type": "string", "description": "format time"}),
    ],
    ids=str,
)  # fmt: skip
def test_a_form_describes_keys_outside_the_protocol_in_words(
    annotation: Any, shown: dict[str, Any]
) -> None:
    """Strict clients show no form that has keys outside of the protocol."""
    assert field_of(annotation) == shown


def test_a_form_describes_a_default_in_the_letters_of_its_language() -> None:
    schema = {"properties": {"size": {"type": "string", "default": "Größe\u202e"}}}
    field = Form.model_validate(schema).properties["size"]
    assert field.in_words(required=False) == 'text; default "Größe\\u202e"; optional'


def test_a_form_shows_enums_in_place() -> None:
    """MCP forms have no references."""
    assert field_of(Meal)["enum"] == ["fish", "vegan"]
    several = field_of(set[Meal])
    assert (several["type"], several["items"]["enum"]) == ("array", ["fish", "vegan"])


@pytest.mark.parametrize(
    ("type_", "schema"),
    [
        (Literal["a"], {"type": "string", "oneOf": [{"const": "a", "title": "Ah"}]}),
        (
            list[Literal["a"]],
            {"type": "array", "items": {"anyOf": [{"const": "a", "title": "Ah"}]}},
        ),
        (Literal["a"], {"type": "string", "enum": ["a"], "enumNames": ["Ah"]}),
    ],
    ids=["one", "several", "legacy"],
)
def test_a_form_shows_choices_with_titles(type_: Any, schema: dict[str, Any]) -> None:
    """SEP-1330: the items of a multi-select have no type."""
    assert field_of(Annotated[type_, WithJsonSchema(schema)]) == schema


def test_a_form_shows_the_titles_of_numbers() -> None:
    numbers = {"type": "integer", "oneOf": [{"const": 1, "title": "Low"}, {"const": 3}]}
    assert field_of(Annotated[int, WithJsonSchema(numbers)]) == {
        "type": "string",
        "oneOf": [{"const": "1", "title": "Low"}, {"const": "3", "title": "3"}],
    }


def test_a_form_shows_the_default_of_a_decimal_as_a_number() -> None:
    shown = field_of(Annotated[Decimal, Field(ge=0)], Decimal("1.5"))
    assert shown == {"type": "number", "minimum": 0, "default": 1.5}


def test_an_optional_field_is_not_required_in_the_form() -> None:
    """MCP forms have no null."""

    class Form(BaseModel):
        must: str
        may: int | None = None
        may_as_well: str | None
        may_in_time: Annotated[date | None, Field(description="When")]
        preset: str = "x"

    assert form_schema(Form) == {
        "type": "object",
        "properties": {
            "must": {"type": "string"},
            "may": {"type": "integer"},
            "may_as_well": {"type": "string"},
            "may_in_time": {"type": "string", "format": "date", "description": "When"},
            "preset": {"type": "string", "default": "x"},
        },
        "required": ["must"],
    }


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (Inner, "renders as object"),
        (dict[str, str], "renders as object"),
        (list[str], "list of something other than enum values"),
        (list[int | str], "list of something other than enum values"),
        (list[Inner], "list of something other than enum values"),
        (tuple[int, int], "list of something other than enum values"),
        (int | str, "renders as anyOf"),
        (Any, "renders as anything"),
        (None, "renders as null"),
        (Callable[[], int], "renders as anything"),
    ],
    ids=str,
)
def test_a_field_that_no_form_can_show_is_refused_when_defined(annotation: Any, words: str) -> None:
    with pytest.raises(TypeError, match=f"Field 'field' of Form .*{words}"):
        field_of(annotation)


class Recursive(BaseModel):
    child: "Recursive | None" = None


class Root(RootModel[int]): ...


def test_a_model_that_is_no_flat_object_is_refused() -> None:
    with pytest.raises(TypeError, match="Field 'child' of Recursive renders as object"):
        form_schema(Recursive)
    with pytest.raises(TypeError, match="A form needs fields, and Root has none"):
        form_schema(Root)


def test_a_form_without_fields_asks_for_consent_alone() -> None:
    """The user's accept or decline is the whole answer."""

    class Consent(BaseModel): ...

    assert form_schema(Consent) == {"type": "object", "properties": {}}


@pytest.mark.parametrize("thing", [int, Inner(x=1), "Inner", None], ids=repr)
def test_only_a_pydantic_model_can_be_asked_for(thing: Any) -> None:
    with pytest.raises(TypeError, match="needs a pydantic model class"):
        Elicitation("key", thing)


def test_an_elicitation_shows_its_key_and_its_model() -> None:
    """The text of an elicitation appears in messages and logs."""
    assert repr(Elicitation("inner", Inner)) == "Elicitation('inner', Inner)"


def test_an_answer_shows_whether_it_was_accepted() -> None:
    assert [Accepted(1).action, Declined().action, Cancelled().action] == [
        "accept",
        "decline",
        "cancel",
    ]
    assert Accepted(1) == Accepted(1) != Accepted(2)

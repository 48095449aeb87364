import pytest

from anabranch._schemas import LEAVE_OUT, Field


@pytest.mark.parametrize(
    ("schema", "label"),
    [
        ({}, "x:"),
        ({"title": "Name"}, "Name:"),
        ({"title": "Name", "description": "yours", "minLength": 2}, "Name (yours; at least 2 characters):"),
        ({"type": "integer", "minimum": 1, "maximum": 5}, "x (1 to 5):"),
        ({"type": "number", "maximum": 0.5}, "x (at most 0.5):"),
        ({"format": "email"}, "x (email):"),
        ({"type": "array", "minItems": 1, "maxItems": 2}, "x (1 to 2 entries):"),
        ({"type": "array", "minItems": 1, "items": {"enum": ["a"]}}, "x (at least 1 choices):"),
    ],
)  # fmt: skip
def test_a_label_names_the_values_of_its_field(schema: dict[str, object], label: str) -> None:
    field = Field.model_validate({"type": "string", **schema})
    assert field.label("x", required=True) == label


def test_a_label_tells_that_a_field_may_be_left_out() -> None:
    assert Field(type="string").label("x", required=False) == "x (optional):"


@pytest.mark.parametrize(
    ("schema", "text", "problem"),
    [
        ({"type": "integer"}, "x", "not a whole number"),
        ({"type": "number"}, "", "not a number"),
        ({"type": "integer"}, "1" + "0" * 5000, "not a whole number that can be sent"),
        ({"type": "number"}, "1e999", "not a number"),
        ({"type": "number"}, "nan", "not a number"),
        ({"type": "integer", "maximum": 5}, "1" + "0" * 400, "must be at most 5"),
        ({"type": "integer", "minimum": 1, "maximum": 5}, "0", "must be 1 to 5"),
        ({"type": "integer", "maximum": 5}, "6", "must be at most 5"),
        ({"type": "string", "minLength": 1}, "", "must have at least 1 characters"),
        ({"type": "string", "maxLength": 1}, "ab", "must have at most 1 characters"),
        ({"type": "string", "pattern": "^a"}, "b", "must match \\^a"),
        ({"type": "string", "format": "date"}, "today", "not a valid date"),
    ],
)
def test_a_slip_is_reported(schema: dict[str, object], text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Field.model_validate(schema).read(text, required=True)


def test_a_whole_number_may_be_longer_than_any_float() -> None:
    assert Field(type="integer").read("1" + "0" * 400, required=True) == 10**400


@pytest.mark.parametrize("values", [[], ["a", "b", "c"]])
def test_too_few_or_too_many_choices_are_reported(values: list[str]) -> None:
    items = {"enum": ["a", "b", "c"]}
    field = Field.model_validate({"type": "array", "minItems": 1, "maxItems": 2, "items": items})
    assert field.chosen(["a"], required=True) == ["a"]
    with pytest.raises(ValueError, match="choose 1 to 2 choices"):
        field.chosen(values, required=True)


@pytest.mark.parametrize(
    ("kind", "entries", "value"),
    [
        ("string", [" a b ", "", "c"], ["a b", "c"]),
        ("integer", ["1", "2"], [1, 2]),
        ("number", ["1.5"], [1.5]),
        ("integer", ["1.5"], "not a whole number: 1.5"),
        ("string", ["a", "b", "c"], "give at most 2 entries"),
    ],
)
def test_the_entries_of_a_list_are_read_by_their_type(
    kind: str, entries: list[str], value: object
) -> None:
    field = Field.model_validate({"type": "array", "items": {"type": kind}, "maxItems": 2})
    if isinstance(value, str):
        with pytest.raises(ValueError, match=value):
            field.listed(entries, required=True)
    else:
        assert field.listed(entries, required=True) == value


@pytest.mark.parametrize(
    ("field", "answer"),
    [
        (Field(type="array"), LEAVE_OUT),
        (Field(type="array", min_items=1), LEAVE_OUT),
        (Field(type="array", min_items=1, default=["a"]), LEAVE_OUT),
        (Field(type="array", default=["a"]), []),
    ],
)
def test_an_optional_list_is_left_out_unless_its_default_was_taken_away(
    field: Field, answer: object
) -> None:
    assert field.chosen([], required=False) == answer


def test_an_unreadable_pattern_accepts_any_text() -> None:
    assert Field(type="string", pattern="(").read("any", required=True) == "any"

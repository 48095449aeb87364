"""Arguments as hosts and models write them: one function reads them for every edge."""

from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from pydantic_core import to_json

from anabranch import BranchContext, InvalidArgumentsError, tool
from tests.randomised import examples


class Leg(BaseModel):
    to: str
    stops: int = 0


@tool
async def book(
    ctx: BranchContext,
    legs: list[Leg],
    colours: list[str] | None = None,
    limit: int = 10,
    note: str = "",
    either: Leg | Literal["none"] = "none",
    first: Leg | None = None,
) -> None:
    """Take arguments of all kinds."""


ROME = [Leg(to="Rome")]


@pytest.mark.parametrize("given", ['{"legs": []}', [["legs", []]], 3], ids=str)
def test_arguments_that_are_no_mapping_are_refused_in_one_sentence(given: Any) -> None:
    """Model APIs return arguments as JSON text, which some hosts pass on unread."""
    with pytest.raises(InvalidArgumentsError, match=r"must be a mapping of names to values; read"):
        book.validate(given)


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ({"legs": '[{"to": "Rome"}]'}, {"legs": ROME}),
        ({"legs": ['{"to": "Rome"}']}, {"legs": ROME}),
        ({"legs": [{"to": "Rome"}], "colours": '["red", "blue"]'}, {"colours": ["red", "blue"]}),
        ({"legs": [], "either": '{"to": "Rome"}'}, {"either": ROME[0]}),
        ({"legs": [], "first": '{"to": "Rome"}'}, {"first": ROME[0]}),
        ({"legs": [], "note": '["a text"]'}, {"note": '["a text"]'}),
        ({"legs": [], "limit": None}, {"limit": 10}),
        ({"legs": [{"to": "Rome", "stops": None}]}, {"legs": ROME}),
        ({"legs": [], "note": None, "limit": None}, {"note": "", "limit": 10}),
        ({"legs": [], "colours": None}, {"colours": None}),
        ({"legs": [], "limit": "3"}, {"limit": 3}),
        ({"legs": [], "toolCallId": "x", "sessionId": 1}, {"legs": []}),
    ],
    ids=str,
)
def test_arguments_are_read_by_plain_meaning(given: dict[str, Any], read: dict[str, Any]) -> None:
    values = book.validate(given)
    assert {name: values[name] for name in read} == read


@pytest.mark.parametrize(
    ("given", "problems"),
    [
        ({"legs": None}, {"legs": "Input should be a valid list"}),
        ({"legs": "Rome"}, {"legs": "Input should be a valid list"}),
        ({"legs": [{"to": None}]}, {"legs.0.to": "Input should be a valid string"}),
        ({"legs": '[{"stops": 1}]'}, {"legs.0.to": "Field required"}),
        (
            {"legs": [], "limit": "many"},
            {"limit": "Input should be a valid integer, unable to parse string as an integer"},
        ),
    ],
    ids=str,
)
def test_arguments_are_refused_by_their_first_reading(
    given: dict[str, Any], problems: dict[str, str]
) -> None:
    with pytest.raises(InvalidArgumentsError) as raised:
        book.validate(given)
    assert raised.value.problems == problems


def test_extra_arguments_are_refused_when_the_author_forbids_them() -> None:
    @tool(extra="forbid")
    async def strict(ctx: BranchContext, city: str) -> None: ...

    assert strict.input_schema["additionalProperties"] is False
    assert "additionalProperties" not in book.input_schema
    with pytest.raises(InvalidArgumentsError, match="sessionId: there is no such parameter"):
        strict.validate({"city": "Rome", "sessionId": 1})


def test_an_unknown_rule_for_extra_arguments_is_refused() -> None:
    with pytest.raises(ValueError, match='neither "ignore" nor "forbid"'):
        tool(extra="allow")(book.fn)  # type: ignore[call-overload] # the point


LEGS = st.lists(st.builds(Leg, to=st.text(max_size=5), stops=st.integers(0, 9)), max_size=3)


@examples(500, gate=50)
@given(LEGS, st.booleans(), st.dictionaries(st.text(min_size=9, max_size=12), st.integers()))
def test_arguments_written_as_text_are_read_as_if_they_were_not(
    legs: list[Leg], inside: bool, extra: dict[str, int]
) -> None:
    plain = [leg.model_dump() for leg in legs]
    written: Any = [to_json(leg).decode() for leg in plain] if inside else to_json(plain).decode()
    assert book.validate({**extra, "legs": written}) == book.validate({"legs": plain})
    assert book.validate({"legs": plain, "limit": None})["limit"] == 10

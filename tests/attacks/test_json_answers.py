"""The JSON value in a model's reply is found in any surrounding text, in linear time."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter, ValidationError

from anabranch._text import answer_in
from tests.randomised import examples


class Card(BaseModel):
    city: str
    degrees: int


ROME = '{"city": "Rome", "degrees": 4}'
OSLO = '{"city": "Oslo", "degrees": 1}'
FOUND = [
    ROME,
    f"Certainly! Here is the JSON you asked for:\n\n{ROME}",
    f"{ROME}\n\nLet me know if you need anything else. :-)",
    f"```json\n{ROME}\n```",
    f"```json {ROME} ```",
    f"```{ROME}```",
    f"Here it is:\n```JSON\n{ROME}\n```\nAs for [1], see {{notes}}.",
    f"<think>Is it {OSLO}? No.</think>{ROME}",
    f"<THINKING>\nIs it {OSLO}?\n</THINKING>\n\n```json\n{ROME}\n```",
    f"Is it {OSLO}? No.\n</think>\n{ROME}",  # the model's prompt template contains the opening tag
    f"As said in [1] and [2, 3], and {{}}: {ROME}.",
    f"{ROME}\nOnce more: {ROME}",
    f'I say "it is {{here}}": {ROME}',
    f'A quote " that is not closed\n{ROME}',
    f"\ufeff{ROME}\x00",
]
NONE = [
    "",
    "I cannot do that.",
    '{"city": "Rome", "degrees": ',
    f'{{"cards": [{ROME}, ',  # a value inside a truncated value is no answer
    f'{{"card": {ROME}}}',
    f"<think>It could be {ROME}",
    '{"city": "Rome" "degrees": 4}',
    f'{{"city": "so it is {ROME}',
]


@pytest.mark.parametrize("text", FOUND, ids=repr)
def test_the_only_fitting_value_is_read_from_any_text(text: str) -> None:
    assert answer_in(text, Card.model_validate_json) == Card(city="Rome", degrees=4)


@pytest.mark.parametrize("text", NONE, ids=repr)
def test_a_reply_without_a_value_that_fits_is_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        answer_in(text, Card.model_validate_json)


@pytest.mark.parametrize("text", [f"{ROME}{OSLO}", f"Either {ROME} or:\n```\n{OSLO}\n```"])
def test_two_different_answers_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="the reply has several answers, and they differ"):
        answer_in(text, Card.model_validate_json)


def test_a_text_with_thinking_tags_in_it_is_read() -> None:
    said = '{"city": "</think>", "degrees": 4}'
    for text in (said, f"Here: {said}"):
        assert answer_in(text, Card.model_validate_json).city == "</think>"


@pytest.mark.parametrize("text", ["42", " 42\n", "```json\n42\n```", "```\n42\n```", "```42```"])
def test_a_number_is_read_alone_or_in_a_fence(text: str) -> None:
    assert answer_in(text, TypeAdapter(int).validate_json) == 42


_json = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
)
_prose = st.text(
    st.characters(exclude_characters='{}[]<>`"', exclude_categories=["Cs"]), max_size=20
)


@examples(500, gate=50)
@given(_prose, st.dictionaries(st.text(max_size=4), _json, min_size=1, max_size=3), _prose)
def test_an_object_in_any_text_is_read(before: str, value: dict[str, Any], after: str) -> None:
    for written in (json.dumps(value), json.dumps(value, indent=1, ensure_ascii=False)):
        read = answer_in(before + written + after, TypeAdapter(dict[str, Any]).validate_json)
        assert read == value


@pytest.mark.parametrize(
    "pattern",
    [
        *("[", "{", "[x", '{"', '{"a', '{"a":', '{"a\\"', '"', "\\", "```", "[]", '["a" ', "[1,"),
        *(
            '{"x":"\n',
            "<think>",
            "</think>",
            "<think></think>",
            "[[]",
            "{]",
            "```json\n",
            " ",
            "-1",
        ),
        *("[" * 500 + "x", '{"a":' * 90 + "x", "1" * 99, '["' + "\\\\" * 50),
    ],
)
def test_a_hostile_reply_of_a_megabyte_is_refused(pattern: str) -> None:
    """Reading takes linear time. A quadratic reading would take until the tests' timeout."""
    with pytest.raises(ValidationError):
        answer_in(pattern * (1_000_000 // len(pattern)), Card.model_validate_json)

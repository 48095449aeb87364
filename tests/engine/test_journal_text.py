"""The text form on its own: two parts, one compressed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch._engine.journal_text import exceeds, inflated, joined, parse, render, split

PRINTS = st.lists(st.text("abcDEF123", min_size=6, max_size=6), max_size=5)


@given(PRINTS)
def test_fingerprints_of_the_usual_length_become_one_text(prints: list[str]) -> None:
    assert joined(prints) == "".join(prints)
    assert split(joined(prints)) == prints


def test_other_fingerprints_stay_apart() -> None:
    assert split(joined(["abc", ""])) == ["abc", ""]


def test_empty_values_at_the_end_are_left_out() -> None:
    fields, public = parse(render([1, "call", 0, "", {}], [["asked"], []]), 1)
    assert (fields, public) == (["call"], [["asked"], []])


def test_only_the_public_part_is_compressed() -> None:
    packed, _, private = render([1, "secret"], ["shown"]).partition(" ")
    assert (inflated(packed), private) == (b'["shown"]', '[1,"secret"]')


@pytest.mark.parametrize("value", ["\ud800", "é", {"a": [1.5, None, True]}])
def test_any_json_survives_in_ascii(value: object) -> None:
    text = render([1, value], [value])
    assert text.isascii()
    assert parse(text, 1) == ([value], [value])


@pytest.mark.parametrize("text", ["", "AAAA [1]", "x 1", "[] [2]", "!! [1]"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse(text, 1)


def test_no_more_is_inflated_than_the_limit() -> None:
    """A token of 4 KB that holds 4 MB."""
    text = render([1, "private"], [[], [["ask", "elicit", "x" * 4_000_000]]])
    assert len(text) < 10_000
    assert exceeds(text, 4_000_000)
    assert not exceeds(text, 4_000_200)
    with pytest.raises(ValueError, match="inflates to more than 1000 bytes"):
        parse(text, 1, 1000)
    assert parse(text, 1, 4_000_200) == parse(text, 1)

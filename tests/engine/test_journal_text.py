"""The text form of a journal: two parts, one of which is compressed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch._engine.journal_text import (
    exceeds,
    joined,
    parse,
    render,
    restore_ids,
    shorten_ids,
    split,
)

PRINTS = st.lists(st.text("abcDEF123", min_size=6, max_size=6), max_size=5)


@given(PRINTS)
def test_fingerprints_of_the_usual_length_are_joined_into_one_text(prints: list[str]) -> None:
    assert joined(prints) == "".join(prints)
    assert split(joined(prints)) == prints


def test_fingerprints_of_other_lengths_stay_separate() -> None:
    assert split(joined(["abc", ""])) == ["abc", ""]


def test_consecutive_ids_are_omitted() -> None:
    rows = [["t/ask.9"], ["t/ask.10"], ["t/ask.12"], ["t/work#1"], ["t/work#2"], ["key"], ["key"]]
    before = [list(row) for row in rows]
    shorten_ids(rows)
    assert rows == [["t/ask.9"], [0], ["t/ask.12"], ["t/work#1"], [0], ["key"], ["key"]]
    restore_ids(rows)
    assert rows == before


NUMBERED = st.builds("{}{}".format, st.sampled_from(["", "a.", "a#"]), st.integers(0, 12))
LONG = st.builds("key{}".format, st.integers(0, 10**12)) | st.just("9" * 5000)


@given(st.lists(NUMBERED | LONG | st.text(max_size=4)))
def test_any_ids_are_restored(ids: list[str]) -> None:
    rows = [[step_id, "x"] for step_id in ids]
    shorten_ids(rows)
    restore_ids(rows)
    assert rows == [[step_id, "x"] for step_id in ids]


def test_empty_values_at_the_end_are_omitted() -> None:
    fields, public = parse(render([1, "call", 0, "", {}], [["asked"], []]), 1)
    assert (fields, public) == (["call"], [["asked"], []])


def test_inflation_stops_at_the_limit() -> None:
    """A token of 4 KB inflates to 4 MB."""
    text = render([1, "private"], [[], [["ask", "elicit", "x" * 4_000_000]]])
    assert len(text) < 10_000
    assert exceeds(text, len(text) - 1)
    assert exceeds(text, 4_000_000)
    assert not exceeds(text, 4_000_200)
    with pytest.raises(ValueError, match="inflates to more than 1000 bytes"):
        parse(text, 1, 1000)
    assert parse(text, 1, 4_000_200) == parse(text, 1)

"""Short ids: every shown id is accepted, and an ambiguous one is refused with its candidates."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.tree import AmbiguousIdError, match_id, short_ids

IDS = ["node_abcdeXYZ", "node_abcdfXYZ", "node_Zbcdefgh", "n1", "thread_abcd9XYZ"]


def test_a_short_id_has_five_characters_or_more_if_needed() -> None:
    assert short_ids(IDS) == {
        "node_abcdeXYZ": "abcde",
        "node_abcdfXYZ": "abcdf",
        "node_Zbcdefgh": "Zbcde",
        "n1": "n1",
        "thread_abcd9XYZ": "abcd9",
    }
    assert list(short_ids(["node_abcdef12", "node_abcdef34"]).values()) == ["abcdef1", "abcdef3"]


@given(st.sets(st.text("abc", min_size=12, max_size=12), min_size=1, max_size=30))
def test_every_short_id_is_accepted(ends: set[str]) -> None:
    ids = [f"node_{end}" for end in sorted(ends)]
    for full, short in short_ids(ids).items():
        assert match_id(short, ids) == match_id(full, ids) == match_id(f"node_{short}", ids) == full


@pytest.mark.parametrize("text", ["", "abcd", "node_", "n", "Xbcde"])
def test_too_short_and_unknown_ids_are_refused(text: str) -> None:
    assert match_id(text, IDS) is None


def test_an_ambiguous_id_is_refused_with_its_candidates() -> None:
    ids = [f"node_abcde{number}" for number in range(7)]
    with pytest.raises(AmbiguousIdError) as raised:
        match_id("abcde", ids)
    assert str(raised.value) == (
        "'abcde' is the beginning of several ids: node_abcde0, node_abcde1, node_abcde2,"
        " node_abcde3, node_abcde4 and 2 more. Give more of the id."
    )

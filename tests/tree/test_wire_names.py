import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.tree._projection import LONGEST, wire_name
from tests.models.provider_rules import NAME


@pytest.mark.parametrize("name", ["look", "a-b_C9", "x" * LONGEST])
def test_a_valid_wire_name_stays_unchanged(name: str) -> None:
    assert wire_name(name) == name


@pytest.mark.parametrize("name", ["", "a.b", "weather/now", "größe", "x" * 65, "a\n", "\ud800"])
def test_an_invalid_wire_name_becomes_one_that_every_provider_accepts(name: str) -> None:
    assert NAME.fullmatch(wire_name(name))


def test_accepted_characters_of_a_name_are_not_changed() -> None:
    assert wire_name("weather.now").startswith("weather_now_")


@given(st.text(max_size=80), st.text(max_size=80))
def test_two_different_names_stay_different(one: str, other: str) -> None:
    assert NAME.fullmatch(wire_name(one))
    assert (wire_name(one) == wire_name(other)) == (one == other)


@given(st.text(max_size=80))
def test_a_translated_name_is_not_translated_again(name: str) -> None:
    assert wire_name(wire_name(name)) == wire_name(name)

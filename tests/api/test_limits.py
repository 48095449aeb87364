"""``Limits``: depth, tokens and time, which inner limits can only narrow."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch import Limits

counts = st.none() | st.integers(0, 10**6)
limits = st.builds(
    Limits, max_depth=counts, max_tokens=counts, timeout=st.none() | st.floats(0, 10**6)
)


@pytest.mark.parametrize("field", ["max_depth", "max_tokens", "timeout"])
@pytest.mark.parametrize("value", [-1, -0.5, math.nan])
def test_a_limit_below_zero_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"Limits\.{field} must not be negative"):
        Limits(**{field: value})


def test_nothing_is_limited_by_default() -> None:
    assert Limits() == Limits(max_depth=None, max_tokens=None, timeout=None)
    assert Limits(max_depth=0, max_tokens=0, timeout=0).max_depth == 0


@given(limits, limits)
def test_the_tighter_of_two_limits_holds(outer: Limits, inner: Limits) -> None:
    both = outer.narrowed(inner)
    for name in ("max_depth", "max_tokens", "timeout"):
        given_values = [getattr(outer, name), getattr(inner, name)]
        expected = min((value for value in given_values if value is not None), default=None)
        assert getattr(both, name) == expected
    assert both == inner.narrowed(outer)
    assert both.narrowed(inner) == both


@given(limits)
def test_missing_inner_limits_change_nothing(outer: Limits) -> None:
    assert outer.narrowed(None) is outer
    assert outer.narrowed(Limits()) is outer
    assert Limits().narrowed(outer) == outer

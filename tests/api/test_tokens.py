"""The estimator: near enough, never less for more text, quick on any text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch._asking.tokens import ADMISSION_MARGIN, estimate_tokens

# Counted with the o200k vocabulary.
COUNTED = [
    ("The quick brown fox jumps over the lazy dog.", 10),
    ("def add(a: int, b: int) -> int:\n    return a + b\n", 18),
    ('{"name": "Ada", "born": 1815, "tags": ["math", "first"]}', 21),
    ("Internationalization considerations notwithstanding", 5),
    ("こんにちは、世界", 4),
]


@pytest.mark.parametrize(("text", "tokens"), COUNTED)
def test_an_estimate_is_of_the_right_size(text: str, tokens: int) -> None:
    """Required: a real estimate where no provider says."""
    assert tokens * 0.6 <= estimate_tokens(text) <= tokens * 2.2


def test_no_text_costs_nothing_and_any_text_something() -> None:
    """Chosen: a prompt is never free."""
    assert estimate_tokens("") == 0
    assert estimate_tokens(" ") == 1
    assert ADMISSION_MARGIN > 1


@given(st.text(max_size=200), st.text(max_size=200))
def test_more_text_never_costs_less(text: str, more: str) -> None:
    """Chosen: else a budget could be cheated by adding words."""
    assert estimate_tokens(f"{text} {more}") >= max(estimate_tokens(text), estimate_tokens(more))

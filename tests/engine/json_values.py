"""Hypothesis strategies for JSON values."""

from typing import Any

from hypothesis import strategies as st

TEXTS = st.text(max_size=20)

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)

"""Compares two lessons without a model: the same, the opposite, nearly the same, or none of these.

Two lessons are the same if they have the same words in the same order. Any other difference, such
as a number, a name or a negation, may change their meaning. They are opposites if they differ only
in an English negation. Case, white space, and punctuation around words do not count.

Two lessons are nearly the same if they share most of their search terms: one lesson in other words,
or a fact that has changed. This module does not decide which of the two is right.
"""

from __future__ import annotations

import re

from anabranch.memory._words import words_of

_SHARED = 0.6
"""The share of common words from which two lessons are nearly the same."""

_ENDING = re.compile(r"(?<=[a-z]{3})(?:ing|ed|es|e|s)$")

_AFTER = ".,;:!?\"'`)]}\u201d\u2019\u2026"
_BEFORE = "\"'`([{\u201c\u2018"
_DENIES = frozenset(["not", "never", "no", "cannot"])
_AFFIRMS = frozenset(["do", "does", "did", "always", "can", "ca", "will", "wo"])
_CONTRACTED = re.compile(r"n['\u2019]t$")


def is_same(one: str, other: str) -> bool:
    """Return whether two lessons say the same."""
    return _words(one) == _words(other)


def is_opposite(one: str, other: str) -> bool:
    """Return whether one lesson says not to do what the other says."""
    first, second = _words(one), _words(other)
    is_denied = any(map(_denies, first)) != any(map(_denies, second))
    return is_denied and _asserted(first) == _asserted(second)


def stems_of(text: str) -> frozenset[str]:
    """Return the words of a lesson without endings, for :func:`is_near`."""
    return frozenset(_ENDING.sub("", word) for word in words_of(text))


def is_near(one: frozenset[str], other: frozenset[str]) -> bool:
    """Return whether two lessons share most of their words; a lesson without words is near to none."""
    return 2 * len(one & other) >= _SHARED * (len(one) + len(other)) > 0


def _words(text: str) -> list[str]:
    return [_bare(word) for word in text.casefold().split()]


def _bare(word: str) -> str:
    """Return a word without the punctuation around it; pure punctuation stays."""
    return word.rstrip(_AFTER).lstrip(_BEFORE) if any(map(str.isalnum, word)) else word


def _denies(word: str) -> bool:
    return word in _DENIES or _CONTRACTED.search(word) is not None


def _asserted(words: list[str]) -> list[str]:
    """Return the words without those that only affirm or deny."""
    bare = (_CONTRACTED.sub("", word) for word in words)
    return [word for word in bare if word not in _DENIES and word not in _AFFIRMS]

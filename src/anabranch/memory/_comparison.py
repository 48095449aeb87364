"""The comparison of two lessons without a model: the same, the opposite, nearly the same, or neither.

Two are the same if they have the same words in the same order: whatever else differs, a number, a name,
a negation or what belongs to what, may change what is to be done. They are opposites if they differ in a
negation alone, as English has it. Upper and lower case, white space, and punctuation around words do
not count.

Two are nearly the same if they share most of their words, as a search has them: one lesson in other words,
or a fact that has changed. Which of them is right is not decided here.
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
    """Return whether two lessons share most of their words; one without words is near to none."""
    return 2 * len(one & other) >= _SHARED * (len(one) + len(other)) > 0


def _words(text: str) -> list[str]:
    return [_bare(word) for word in text.casefold().split()]


def _bare(word: str) -> str:
    """Return a word without the punctuation around it; what is nothing else is left alone."""
    return word.rstrip(_AFTER).lstrip(_BEFORE) if any(map(str.isalnum, word)) else word


def _denies(word: str) -> bool:
    return word in _DENIES or _CONTRACTED.search(word) is not None


def _asserted(words: list[str]) -> list[str]:
    """Return the words without those that only affirm or deny the others."""
    bare = (_CONTRACTED.sub("", word) for word in words)
    return [word for word in bare if word not in _DENIES and word not in _AFFIRMS]

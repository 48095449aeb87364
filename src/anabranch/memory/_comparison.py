"""The comparison of two lessons without a model: the same, the opposite, or neither.

Two are the same if they have the same words in the same order, or the same clauses, where nothing says
in which order they are meant: whatever else differs, a number, a name or a negation, may change what is
to be done. They are opposites if they differ in a negation alone, as English has it. Upper and lower
case, white space, and punctuation around words do not count.
"""

from __future__ import annotations

import re

__all__ = ["is_opposite", "is_same"]

_AFTER = ".,;:!?\"'`)]}\u201d\u2019\u2026"
_BEFORE = "\"'`([{\u201c\u2018"
_ENDS_CLAUSE = re.compile(r"[.,;:!?\u2026]$")
_ORDERS = frozenset(
    [
        "after",
        "afterwards",
        "before",
        "finally",
        "first",
        "from",
        "instead",
        "last",
        "later",
        "next",
        "once",
        "over",
        "rather",
        "since",
        "than",
        "then",
        "to",
        "under",
        "unless",
        "until",
        "when",
        "while",
    ]
)
_DENIES = frozenset(["not", "never", "no", "cannot"])
_AFFIRMS = frozenset(["do", "does", "did", "always", "can", "ca", "will", "wo"])
_CONTRACTED = re.compile(r"n['\u2019]t$")


def is_same(one: str, other: str) -> bool:
    """Whether two lessons say the same."""
    first, second = _clauses(one), _clauses(other)
    if _joined(first) == _joined(second):
        return True
    return _ORDERS.isdisjoint(_joined(first)) and sorted(first) == sorted(second)


def is_opposite(one: str, other: str) -> bool:
    """Whether one lesson says not to do what the other says."""
    first, second = _joined(_clauses(one)), _joined(_clauses(other))
    is_denied = any(map(_denies, first)) != any(map(_denies, second))
    return is_denied and _asserted(first) == _asserted(second)


def _clauses(text: str) -> list[list[str]]:
    clauses: list[list[str]] = [[]]
    for word in text.casefold().split():
        has_letters = any(map(str.isalnum, word))
        bare = word.rstrip(_AFTER).lstrip(_BEFORE) if has_letters else word
        if bare == "and":
            clauses.append([])
            continue
        clauses[-1].append(bare)
        if _ENDS_CLAUSE.search(word):
            clauses.append([])
    return [clause for clause in clauses if clause]


def _joined(clauses: list[list[str]]) -> list[str]:
    return [word for clause in clauses for word in clause]


def _denies(word: str) -> bool:
    return word in _DENIES or _CONTRACTED.search(word) is not None


def _asserted(words: list[str]) -> list[str]:
    """Return the words without those that only affirm or deny the others."""
    bare = (_CONTRACTED.sub("", word) for word in words)
    return [word for word in bare if word not in _DENIES and word not in _AFFIRMS]

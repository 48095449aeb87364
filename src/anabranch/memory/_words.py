"""Splits texts into the words of a search, and compares lessons by their words.

Lessons that are nearly the same may differ in a negation, a number or a name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby
from unicodedata import category, combining, normalize

_ASCII = re.compile(r"[a-z0-9]+")
_LONGEST = 64
_WORD = 1
_UNSPACED = (
    (0x0E00, 0x0EFF, 3),  # Thai, Lao
    (0x1000, 0x109F, 3),  # Burmese
    (0x1100, 0x11FF, 2),  # letters of Hangul
    (0x1780, 0x17FF, 3),  # Khmer
    (0x2E80, 0x9FFF, 2),  # Chinese characters, Kana, Bopomofo
    (0xA9E0, 0xA9FF, 3),  # Burmese
    (0xAA60, 0xAA7F, 3),  # Burmese
    (0xAC00, 0xD7FF, 2),  # Hangul
    (0xF900, 0xFAFF, 2),  # Chinese characters
    (0x1B000, 0x1B16F, 2),  # Kana
    (0x20000, 0x3FFFF, 2),  # Chinese characters
)
"""The scripts whose terms are grams: first and last code point, and characters of a gram."""

_ACCENTS = frozenset([*range(10, 37), *range(200, 241)])
"""The combining classes of accents around a letter, and of points of Hebrew, Arabic and Syriac."""

_FILLERS = "\u034f\u0640\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u3164\uffa0"
"""Characters that only fill or select a shape, although Unicode does not class them as format."""


def folded(text: str) -> str:
    if text.isascii():
        return text.lower()
    plain = normalize("NFKD", text).casefold()
    return normalize("NFC", "".join(char for char in plain if not _is_ignored(char)))


def indexed(text: str) -> str:
    """Return the index terms of a note; a question may be shorter than a gram, so all lengths count."""
    return " ".join(
        term
        for run, size in _runs(text)
        for length in range(1, size + 1)
        for term in _cut(run, length, size)
    )


def _runs(text: str) -> Iterator[tuple[str, int]]:
    plain = folded(text)
    if plain.isascii():  # the common case, in a tenth of the time
        yield from ((word, _WORD) for word in _ASCII.findall(plain))
        return
    for size, run in groupby(plain, _size):
        if size:
            yield "".join(run), size


def _cut(run: str, length: int, size: int) -> Iterator[str]:
    if size == _WORD:
        yield run[:_LONGEST]
    else:
        yield from (run[at : at + length] for at in range(len(run) - length + 1))


@lru_cache(4_096)
def _size(char: str) -> int:
    if category(char)[0] not in "LMN":
        return 0
    code = ord(char)
    return next((size for first, last, size in _UNSPACED if first <= code <= last), _WORD)


@lru_cache(4_096)
def _is_ignored(char: str) -> bool:
    return (
        combining(char) in _ACCENTS
        or category(char) in ("Cf", "Me")
        or char in _FILLERS
        or "\ufe00" <= char <= "\ufe0f"  # variation selectors
        or "\U000e0100" <= char <= "\U000e01ef"
    )


_STOP = frozenset(
    """
    a about above after again against all also am an and any are as at be because been before
    being below between both but by can could did do does doing down during each few for from
    further get had has have having he her here hers him his how i if in into is it its itself
    just let like may me might more most must my no nor not now of off on once only or other our
    out over own per please same shall she should so some such than that the their them then there
    these they this those through to too under until up upon us use used using very via was we
    were what when where which while who whom why will with within without would you your
    """.split()  # noqa: SIM905 - a list would have a line for each word
)
"""English words that a search ignores, since most texts have them."""


_NAME = re.compile(r"(?<![0-9A-Za-z'\u2019])(?:[A-Z](?![0-9A-Za-z])|[a-z](?=[+#]))")
"""A letter that is a name, such as R, C++ or c#, and no part of a word."""


def words_of(text: str) -> list[str]:
    """Return the words to search for, each once; one letter is a word if it is a name, such as R."""
    names = {name.lower() for name in _NAME.findall(text)}
    terms = (term for run, size in _runs(text) for term in _cut(run, min(size, len(run)), size))
    return [
        word
        for word in dict.fromkeys(terms)
        if word not in _STOP and (len(word) > 1 or word > "z" or word in names)
    ]


_SHARED = 0.6
"""The share of common words from which two lessons are nearly the same."""

_ENDING = re.compile(r"(?<=[a-z]{3})(?:ing|ed|es|e|s)$")

_AFTER = ".,;:!?\"'`)]}\u201d\u2019\u2026"
_BEFORE = "\"'`([{\u201c\u2018"
_DENIES = frozenset(["not", "never", "no", "cannot"])
_AFFIRMS = frozenset(["do", "does", "did", "always", "can", "ca", "will", "wo"])
_CONTRACTED = re.compile(r"n['\u2019]t$")


def is_same(one: str, other: str) -> bool:
    return _words(one) == _words(other)


def is_opposite(one: str, other: str) -> bool:
    first, second = _words(one), _words(other)
    is_denied = any(map(_denies, first)) != any(map(_denies, second))
    return is_denied and _asserted(first) == _asserted(second)


def stems_of(text: str) -> frozenset[str]:
    return frozenset(_ENDING.sub("", word) for word in words_of(text))


def is_near(one: frozenset[str], other: frozenset[str]) -> bool:
    return 2 * len(one & other) >= _SHARED * (len(one) + len(other)) > 0


def _words(text: str) -> list[str]:
    return [_bare(word) for word in text.casefold().split()]


def _bare(word: str) -> str:
    return word.rstrip(_AFTER).lstrip(_BEFORE) if any(map(str.isalnum, word)) else word


def _denies(word: str) -> bool:
    return word in _DENIES or _CONTRACTED.search(word) is not None


def _asserted(words: list[str]) -> list[str]:
    bare = (_CONTRACTED.sub("", word) for word in words)
    return [word for word in bare if word not in _DENIES and word not in _AFFIRMS]

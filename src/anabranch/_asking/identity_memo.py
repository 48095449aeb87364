"""A memo by identity: a function's value for each object, computed once while the object lives.

The messages of a conversation are frozen and shared by all the requests that it leads to. Without a
memo each request computes what it needs of every message again, and a conversation of n requests
costs n².
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from functools import partial
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class IdentityMemo(Generic[K, V]):
    """``function``, whose values are stored by the identity of its argument.

    Equal objects are computed once each: to compare two messages takes as long as to compute most
    of what is asked of them, and not all of them can be hashed. An object must not change in what
    ``function`` reads. A value is dropped with its object.
    """

    __slots__ = ("_function", "_known")

    def __init__(self, function: Callable[[K], V]) -> None:
        self._function = function
        self._known: dict[int, tuple[weakref.ref[K], V]] = {}

    def __call__(self, each: Iterable[K]) -> list[V]:
        """Return the values of these objects; what ``function`` raises for one is not stored."""
        known, compute = self._known.get, self._compute  # a long path is passed in every request
        return [
            found[1] if (found := known(id(of))) is not None and found[0]() is of else compute(of)
            for of in each
        ]

    def _compute(self, of: K) -> V:
        value, key = self._function(of), id(of)
        self._known[key] = weakref.ref(of, partial(self._drop, key)), value
        return value

    def __len__(self) -> int:
        """The number of living objects whose value is known."""
        return len(self._known)

    def _drop(self, key: int, gone: weakref.ref[K]) -> None:
        # An id may have been given to a new object before the callback of the old one runs.
        if self._known.get(key, (None,))[0] is gone:
            del self._known[key]

"""The conversation of one branch for each of its tasks: inherited messages, and messages since.

Messages stand in the order of the program, not of the answers.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from anabranch._engine import Scope
from anabranch.messages import Message

K = TypeVar("K")
V = TypeVar("V")


class IdentityMemo(Generic[K, V]):
    """A function whose values are stored by the identity of its argument, until the object is gone.

    Each request has the objects of the request before, and a few more, so only these are looked up.
    An object must not change in the parts that the function reads.
    """

    __slots__ = ("_function", "_known", "_latest")

    def __init__(self, function: Callable[[K], V]) -> None:
        self._function = function
        self._known: dict[int, tuple[weakref.ref[K], V]] = {}
        self._latest: tuple[list[int], list[V]] = [], []

    def __call__(self, each: Sequence[K]) -> Sequence[V]:
        ids, (before, values) = list(map(id, each)), self._latest
        if ids[: len(before)] != before:
            values = []
        known, compute = self._known.get, self._compute
        values = values + [
            found[1] if (found := known(id(of))) is not None and found[0]() is of else compute(of)
            for of in each[len(values) :]
        ]
        self._latest = ids, values
        return values

    def _compute(self, of: K) -> V:
        value, key = self._function(of), id(of)
        self._known[key] = weakref.ref(of, partial(self._drop, key)), value
        return value

    def __len__(self) -> int:
        return len(self._known)

    def _drop(self, key: int, gone: weakref.ref[K]) -> None:
        self._latest = [], []  # an id in it may soon be another object's
        # A new object may have got the id before the callback of the old object runs.
        if self._known.get(key, (None,))[0] is gone:
            del self._known[key]


class _Said(NamedTuple):
    places: int = 0
    groups: tuple[tuple[int, tuple[Message, ...]], ...] = ()


_NOTHING = _Said()


class Conversation:
    __slots__ = ("_inherited",)

    def __init__(self, inherited: tuple[Message, ...]) -> None:
        self._inherited = inherited

    def messages(self, scope: Scope) -> tuple[Message, ...]:
        said: _Said = scope.memory.get(self, _NOTHING)
        if not said.groups:
            return self._inherited
        return self._inherited + tuple(message for _, group in said.groups for message in group)

    def take_place(self, scope: Scope) -> int:
        said: _Said = scope.memory.get(self, _NOTHING)
        scope.memory = {**scope.memory, self: said._replace(places=said.places + 1)}
        return said.places + 1

    def append(self, scope: Scope, place: int, messages: tuple[Message, ...]) -> None:
        said: _Said = scope.memory.get(self, _NOTHING)
        groups = sorted((*said.groups, (place, messages)), key=lambda group: group[0])
        scope.memory = {**scope.memory, self: said._replace(groups=tuple(groups))}

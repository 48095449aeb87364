"""The conversation of one branch for each of its tasks: inherited messages, and messages since.

Each task that the author starts sees the messages of its parent at its start, and its own messages.
Two concurrent tasks cannot share one list of messages; sub-branches bring their results together.
Messages stand in the order of the program, not of the answers. The scope's memory stores them, and
a new strand inherits that memory. (A *strand* is one concurrent task of a call.)
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
    """A function whose values are stored by the identity of its argument.

    Equal objects are computed once each: comparing two messages costs as much as computing their
    value, and not every object can be hashed. An object must not change in the parts that
    ``function`` reads. The memo drops a value together with its object.

    Each request of a conversation passes the objects of the request before, and a few more. So the
    memo looks up only the objects that follow the latest ones.
    """

    __slots__ = ("_function", "_known", "_latest")

    def __init__(self, function: Callable[[K], V]) -> None:
        self._function = function
        self._known: dict[int, tuple[weakref.ref[K], V]] = {}
        self._latest: tuple[list[int], list[V]] = [], []

    def __call__(self, each: Sequence[K]) -> Sequence[V]:
        """Return the value of ``each`` object; store no error of ``function``."""
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
    """The messages of a branch: the number of prompts, and the prompts that have an answer."""

    places: int = 0
    groups: tuple[tuple[int, tuple[Message, ...]], ...] = ()


_NOTHING = _Said()


class Conversation:
    """The conversation of a branch that began with ``inherited``."""

    __slots__ = ("_inherited",)

    def __init__(self, inherited: tuple[Message, ...]) -> None:
        self._inherited = inherited

    def messages(self, scope: Scope) -> tuple[Message, ...]:
        said: _Said = scope.memory.get(self, _NOTHING)
        if not said.groups:
            return self._inherited
        return self._inherited + tuple(message for _, group in said.groups for message in group)

    def take_place(self, scope: Scope) -> int:
        """Return the number of the new prompt in the conversation, counted from 1."""
        said: _Said = scope.memory.get(self, _NOTHING)
        scope.memory = {**scope.memory, self: said._replace(places=said.places + 1)}
        return said.places + 1

    def append(self, scope: Scope, place: int, messages: tuple[Message, ...]) -> None:
        """Add messages as the prompt of number ``place`` and its answer."""
        said: _Said = scope.memory.get(self, _NOTHING)
        groups = sorted((*said.groups, (place, messages)), key=lambda group: group[0])
        scope.memory = {**scope.memory, self: said._replace(groups=tuple(groups))}

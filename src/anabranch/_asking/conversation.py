"""The conversation of one branch, as each task sees it: what it began with, and what was said since.

Each task that the author starts has its own view: what its parent had when it started, and what it
said itself. Two tasks that talk at once cannot share one line of messages; sub-branches are the
means to bring results together. The order of what was said is that of the program, not that of the
answers. What is said is stored in the scope's memory, which a new strand inherits.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from anabranch._engine import Scope
from anabranch.messages import Message

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


class _Said(NamedTuple):
    """What was said in a branch: how many prompts were made, and those that have an answer."""

    places: int = 0
    groups: tuple[tuple[int, tuple[Message, ...]], ...] = ()


_NOTHING = _Said()


class Conversation:
    """The conversation of a branch that began with ``inherited``."""

    __slots__ = ("_inherited",)

    def __init__(self, inherited: tuple[Message, ...]) -> None:
        self._inherited = inherited

    def messages(self, scope: Scope) -> tuple[Message, ...]:
        """Return the conversation so far, as the next prompt will continue it."""
        said: _Said = scope.memory.get(self, _NOTHING)
        if not said.groups:
            return self._inherited
        return self._inherited + tuple(message for _, group in said.groups for message in group)

    def take_place(self, scope: Scope) -> int:
        """Return the place in the conversation of the prompt that is made now; 1 is the first."""
        said: _Said = scope.memory.get(self, _NOTHING)
        scope.memory = {**scope.memory, self: said._replace(places=said.places + 1)}
        return said.places + 1

    def append(self, scope: Scope, place: int, messages: tuple[Message, ...]) -> None:
        """Add what was said at ``place``."""
        said: _Said = scope.memory.get(self, _NOTHING)
        groups = sorted((*said.groups, (place, messages)), key=lambda group: group[0])
        scope.memory = {**scope.memory, self: said._replace(groups=tuple(groups))}

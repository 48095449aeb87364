"""The conversation of one branch, as each task sees it: what it began with, and what was said since.

Each task that the author starts has its own view: what its parent had when it started, and what it
said itself. Two tasks that talk at once cannot share one line of messages; sub-branches are the
means to bring results together. The order of what was said is that of the program, not that of the
answers. What is said is stored in the scope's memory, which a new strand inherits.
"""

from __future__ import annotations

from typing import NamedTuple

from anabranch._engine import Scope
from anabranch.messages import Message


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

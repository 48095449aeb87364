"""Scopes, which name each step of a call after its place in the program, and not after its time.

A task that starts inside a scope gets a new scope, so two tasks that run concurrently never share a
counter:

    book_flight/elicit.1                 the tool's first unnamed question
    book_flight/analyze#2/sample.1       in the second sub-branch named ``analyze``
    book_flight/~worker#1/elicit.1       in a task that the tool started itself
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias

from anabranch._engine.branch import Branch
from anabranch.errors import ContextUseError

Observe: TypeAlias = Callable[[str, str], AbstractContextManager[object]]
"""Returns a context manager around each step, undo, ask and branch (kind, id) that is not replayed."""

_UNOBSERVED: AbstractContextManager[None] = nullcontext()


def unobserved(kind: str, step_id: str) -> AbstractContextManager[object]:
    del kind, step_id
    return _UNOBSERVED


_NOTHING: Mapping[object, Any] = {}


class Scope:
    """The place of one strand (a task of the call) in the call's program.

    A new strand starts with its parent's ``memory``, as with context variables, so a mapping is
    replaced and never changed. An ``unordered`` task was started from a set: its ``path`` is an
    accident, and names no step.
    """

    __slots__ = (
        "_counters",
        "branch",
        "memory",
        "path",
        "randomness",
        "seed",
        "steps",
        "unordered",
    )

    def __init__(self, branch: Branch, path: str, memory: Mapping[object, Any] = _NOTHING) -> None:
        self.branch: Branch = branch
        self.path: str = path
        self.memory: Mapping[object, Any] = memory
        self.unordered: bool = False
        self.steps: int = 0
        self._counters: dict[str, int] | None = None  # most of thousands of scopes count nothing
        self.seed: str | None = None
        self.randomness: random.Random | None = None

    def child(self, name: str, *, unordered: bool) -> Scope:
        made = Scope(self.branch, f"{self.path}/~{name}#{self.count('~' + name)}", self.memory)
        made.unordered = unordered or self.unordered
        return made

    def check_order(self, name: str) -> None:
        """Refuse to name a step in a task that was started from a set: its name differs from run to run."""
        if self.unordered:
            raise ContextUseError(
                f"{self.path}/{name}",
                "in tasks that the function starts in a fixed order",
                "in a coroutine that asyncio.as_completed started, in the order of a set",
                "Pass ctx operations or tasks to as_completed, or give each operation a key=.",
            )

    def count(self, name: str) -> int:
        """Return how often ``name`` has been used here, this time included."""
        counters = self._counters
        if counters is None:
            counters = self._counters = {}
        number = counters.get(name, 0) + 1
        counters[name] = number
        return number

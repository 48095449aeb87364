"""Scopes, which name each step of a call after its place in the program, and not after its time.

A scope is a place in a call's program, with a branch, a path and counters. A scope counts its steps
in the order in which its code makes them. A task that starts inside a scope gets a new scope, named
after its coroutine and counted within the first. So two tasks that run concurrently never share a
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
"""Receives the kind and the id of each step, undo, ask and branch that runs and is not replayed.

The returned context manager surrounds the operation, and sees the exception that ends it. A cancelled
operation may run again in a later round.
"""

_UNOBSERVED: AbstractContextManager[None] = nullcontext()


def unobserved(kind: str, step_id: str) -> AbstractContextManager[object]:
    """Return a context manager that observes nothing."""
    del kind, step_id
    return _UNOBSERVED


_NOTHING: Mapping[object, Any] = {}


class Scope:
    """The place of one strand (a task of the call) in the call's program.

    Attributes:
        branch: branch whose limits hold here.
        memory: values that the author's view of a branch stores per scope. A new strand starts with
            its parent's, as with context variables, so a mapping is replaced and never changed.
        unordered: whether the task was started from a set, so that ``path`` is an accident and no
            step can be named here.
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

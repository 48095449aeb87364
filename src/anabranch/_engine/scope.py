"""A place in a call's program: a branch, a path that names it, and counters of what is made there.

Identity must not depend on timing. A scope counts its own steps, in the order in which its code
makes them; a task started inside a scope gets a scope of its own, named after its coroutine and
counted within the one that started it. So two tasks that run at once never share a counter:

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
from anabranch.errors import NonDeterminismError

Observe: TypeAlias = Callable[[str, str], AbstractContextManager[object]]
"""Is given the kind of an operation and its id: a step, an undo, an ask or a branch that is really
run, and not replayed. What it returns surrounds that, and sees the exception that ends it; one that
is cancelled may be run again in a later round."""

_UNOBSERVED: AbstractContextManager[None] = nullcontext()


def unobserved(kind: str, step_id: str) -> AbstractContextManager[object]:
    """Look at nothing."""
    del kind, step_id
    return _UNOBSERVED


_NOTHING: Mapping[object, Any] = {}


class Scope:
    """Where one strand is in its call.

    Attributes:
        branch: whose limits hold here.
        path: names the place.
        memory: what the author's view of a branch stores per scope; a new strand starts with its
            parent's, as with context variables. So it is replaced and never changed.
        unordered: ``path`` is an accident, because the task was started from a set: nothing can
            be named here.
        steps: how many steps were made here.
        steps: how many steps were made here.
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
        """Return the scope of a task that is started here and runs a coroutine of that name."""
        made = Scope(self.branch, f"{self.path}/~{name}#{self.count('~' + name)}", self.memory)
        made.unordered = unordered or self.unordered
        return made

    def check_order(self, name: str) -> None:
        """Refuse to name anything in a task whose own name differs from run to run.

        Raises:
            NonDeterminismError: the task was started from a set.
        """
        if self.unordered:
            raise NonDeterminismError(
                f"{self.path}/{name}",
                "tasks started in an order of their own",
                "asyncio.as_completed over coroutines, which starts them from a set: pass it"
                " ctx operations or tasks, or give key=",
            )

    def count(self, name: str) -> int:
        """Return how often ``name`` has been used here, this time included."""
        counters = self._counters
        if counters is None:
            counters = self._counters = {}
        number = counters.get(name, 0) + 1
        counters[name] = number
        return number

"""The hooks around the operations of a run, for those who look at it from outside, such as a tracer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TypeAlias

Observe: TypeAlias = Callable[[str, str], AbstractContextManager[object]]
"""Is given the kind of an operation and its id: a step, an undo, an ask or a branch that is really
run, and not replayed. What it returns surrounds that, and sees the exception that ends it; one that
is cancelled may be run again in a later round."""

_NOTHING: AbstractContextManager[None] = nullcontext()


def unobserved(kind: str, step_id: str) -> AbstractContextManager[object]:
    """Look at nothing."""
    del kind, step_id
    return _NOTHING

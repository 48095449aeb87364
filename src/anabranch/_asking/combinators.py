"""``ctx.gather`` and ``ctx.race``: methods of ``BranchContext`` for several operations at once.

They have an overload for each number of operations.
"""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine
from typing import Any, Protocol, TypeVar, overload

from anabranch._engine import Call, all_of, none_of

T = TypeVar("T")
T1 = TypeVar("T1")
T2 = TypeVar("T2")
T3 = TypeVar("T3")
T4 = TypeVar("T4")
T5 = TypeVar("T5")
T6 = TypeVar("T6")

Op = Coroutine[Any, Any, T]
"""An operation: await it, pass it to ``gather`` or ``race``, or start a task of it."""


class OperationsContext(Protocol):
    """The ``BranchContext`` whose methods these are."""

    _call: Call[Any]


@overload
def gather(self: OperationsContext, op1: Awaitable[T1], /) -> Op[tuple[T1]]: ...
@overload
def gather(
    self: OperationsContext, op1: Awaitable[T1], op2: Awaitable[T2], /
) -> Op[tuple[T1, T2]]: ...
@overload
def gather(
    self: OperationsContext, op1: Awaitable[T1], op2: Awaitable[T2], op3: Awaitable[T3], /
) -> Op[tuple[T1, T2, T3]]: ...
@overload
def gather(
    self: OperationsContext,
    op1: Awaitable[T1],
    op2: Awaitable[T2],
    op3: Awaitable[T3],
    op4: Awaitable[T4],
    /,
) -> Op[tuple[T1, T2, T3, T4]]: ...
@overload
def gather(
    self: OperationsContext, op1: Awaitable[T1], op2: Awaitable[T2], op3: Awaitable[T3], op4: Awaitable[T4],
    op5: Awaitable[T5], /,
) -> Op[tuple[T1, T2, T3, T4, T5]]: ...  # fmt: skip
@overload
def gather(
    self: OperationsContext, op1: Awaitable[T1], op2: Awaitable[T2], op3: Awaitable[T3], op4: Awaitable[T4],
    op5: Awaitable[T5], op6: Awaitable[T6], /,
) -> Op[tuple[T1, T2, T3, T4, T5, T6]]: ...  # fmt: skip
@overload
def gather(self: OperationsContext, *operations: Awaitable[T]) -> Op[tuple[T, ...]]: ...


def gather(self: OperationsContext, *operations: Awaitable[Any]) -> Op[tuple[Any, ...]]:
    """Run all at once and return their values in order.

    All of them end, also when one fails; then the first error in order is raised. If one asks what
    can be asked of no one, its ``CapabilityError`` is raised, and none is started.
    """
    call = self._call  # pyright: ignore[reportPrivateUsage] - as a method of the context
    refusal = call.scheduler.refusal_of(operations)
    return call.scheduler.made(
        all_of(operations) if refusal is None else none_of(operations, refusal), refusal
    )


@overload
def race(self: OperationsContext, op1: Awaitable[T1], op2: Awaitable[T2], /) -> Op[T1 | T2]: ...
@overload
def race(
    self: OperationsContext, op1: Awaitable[T1], op2: Awaitable[T2], op3: Awaitable[T3], /
) -> Op[T1 | T2 | T3]: ...
@overload
def race(self: OperationsContext, *operations: Awaitable[T]) -> Op[T]: ...


def race(self: OperationsContext, *operations: Awaitable[Any]) -> Op[Any]:
    """Run all at once; return the value (or raise the error) of the one that ends first.

    The others are cancelled. The winner is recorded: a replay does not race again.

    Raises:
        ValueError: nothing was given to race.
    """
    if not operations:
        raise ValueError("race() needs at least one operation")
    call = self._call  # pyright: ignore[reportPrivateUsage] - as a method of the context
    scope = call.scheduler.scope()
    step_id = call.cursor.new_id(scope, "race")
    return call.scheduler.made(call.operations.race(scope, step_id, operations))

"""``ctx.step``: the method of ``BranchContext`` that runs an effect once per call."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, TypeVarTuple, overload

from anabranch._asking.combinators import Op, OperationsContext
from anabranch._asking.names import name_for
from anabranch._engine import pin

V = TypeVar("V")
Ts = TypeVarTuple("Ts")


@overload
def step(
    self: OperationsContext, fn: Callable[[*Ts], Coroutine[Any, Any, V]], *args: *Ts,
    name: str | None = None, undo: Callable[[V], Any] | None = None,
) -> Op[V]: ...  # fmt: skip
@overload
def step(
    self: OperationsContext, fn: Callable[[*Ts], V], *args: *Ts,
    name: str | None = None, undo: Callable[[V], Any] | None = None,
) -> Op[V]: ...  # fmt: skip


def step(
    self: OperationsContext, fn: Callable[[*Ts], Any], *args: *Ts,
    name: str | None = None, undo: Callable[[Any], Any] | None = None,
) -> Op[Any]:  # fmt: skip
    """Run ``fn(*args)`` once per call, record its value, and return that in every replay.

    A plain function runs in a thread, an ``async`` one on the loop. If the call fails or is
    cancelled later, ``undo(value)`` is run, in reverse order of the steps.

    Raises:
        StepFailed: ``fn`` raised; an ``AnabranchError`` that it raised comes as it is.
        SerializationError: the value cannot be recorded; the call fails.
    """
    call = self._call  # pyright: ignore[reportPrivateUsage] - as a method of the context
    scope = call.scheduler.strand().scope
    step_id = call.cursor.new_id(scope, name_for(fn, name, "step"))
    scope.steps += 1
    asked = pin(fn, args)
    effect = call.effects.step(scope, step_id, asked, fn, args, scope.steps, undo)
    return call.scheduler.made(effect)

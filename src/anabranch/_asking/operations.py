"""``ctx.log``, ``notify``, ``sleep``, ``step``, ``patched``, ``gather`` and ``race``: methods of ``BranchContext``."""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime
from typing import Any, Protocol, TypeVar, TypeVarTuple, get_args, overload

from anabranch._engine import Call, Notice, all_of, none_of, pin
from anabranch._text import MARKS, checked_name
from anabranch.messages import LogLevel


def checked_key(key: str | None) -> str | None:
    """Return the ``key=`` of a question, or ``None`` without one.

    Raises:
        ValueError: if the key is empty or has a reserved character; see
            ``_text.names.checked_name``.
    """
    return None if key is None else checked_name(key, "key")


def name_for(fn: Callable[..., Any], given: str | None, default: str) -> str:
    """Return the name of a branch or a step: the given name, or else the function's.

    Raises:
        ValueError: if the name is empty or has a reserved character; see
            ``_text.names.checked_name``.
    """
    if given is not None:
        return checked_name(given)
    own: object = getattr(fn, "__name__", None)
    if not isinstance(own, str):
        return default
    return own if own.isidentifier() or (own and not MARKS & set(own)) else default


_LEVELS: tuple[str, ...] = get_args(LogLevel)


def log(self: OperationsContext, level: LogLevel, message: str) -> Op[None]:
    """Send a log line to the client, once.

    Raises:
        ValueError: if ``level`` is not a log level of the protocol.
    """
    if level not in _LEVELS:
        raise ValueError(f"{level!r} is no log level; use one of {', '.join(_LEVELS)}")
    return _notice(self, Notice(message, level=level))


def notify(
    self: OperationsContext,
    message: str,
    progress: float | None = None,
    total: float | None = None,
) -> Op[None]:
    """Report the call's progress to the client, once; without ``progress``, as a count."""
    return _notice(self, Notice(message, progress=progress, total=total))


def _notice(self: OperationsContext, notice: Notice) -> Op[None]:
    call = self._call  # pyright: ignore[reportPrivateUsage] - as a method of the context
    return call.scheduler.made(call.operations.notify(call.scheduler.scope(), notice))


def sleep_until(self: OperationsContext, when: datetime) -> Op[None]:
    """Return at the time ``when``, or immediately if that is past; a sleep may last weeks.

    In a ``race``, it limits the time for an answer; a later answer comes too late.

    Raises:
        ValueError: if ``when`` has no time zone, since it would be another time on another machine.
    """
    if when.utcoffset() is None:
        raise ValueError(
            f"sleep_until() takes a time with its zone, got {when.isoformat()}:"
            " write datetime(…, tzinfo=UTC), or begin with ctx.now()"
        )
    return _slept(self, when.timestamp())


def sleep(self: OperationsContext, seconds: float) -> Op[None]:
    """Return ``seconds`` after the first call, by the clock; a replay does not start the wait again.

    Raises:
        ValueError: if ``seconds`` is not a finite number.
    """
    if not math.isfinite(seconds):
        raise ValueError(f"sleep() takes a finite number of seconds, got {seconds!r}")
    call = self._call  # pyright: ignore[reportPrivateUsage] - as a method of the context
    return _slept(self, call.operations.now(call.scheduler.scope()) + seconds)


def _slept(self: OperationsContext, until: float) -> Op[None]:
    call = self._call  # pyright: ignore[reportPrivateUsage] - as a method of the context
    scope = call.scheduler.scope()
    step_id = call.cursor.new_id(scope, "sleep")
    return call.scheduler.made(call.operations.sleep(scope, step_id, until))


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
    cancelled later, ``undo(value)`` runs; steps are undone in reverse order.

    Raises:
        StepFailed: if ``fn`` raised; an ``AnabranchError`` from ``fn`` is raised unchanged.
        SerializationError: if the value cannot be recorded; the call fails.
    """
    if not callable(fn):
        if inspect.iscoroutine(fn):
            fn.close()
        raise TypeError(
            f"ctx.step takes a function and its arguments, got {type(fn).__name__}."
            " Write ctx.step(reserve, seat), not ctx.step(reserve(seat))."
        )
    call = self._call  # pyright: ignore[reportPrivateUsage] - as a method of the context
    scope = call.scheduler.strand().scope
    step_id = call.cursor.new_id(scope, name_for(fn, name, "step"))
    scope.steps += 1
    asked = pin(fn, args)
    effect = call.effects.step(scope, step_id, asked, fn, args, scope.steps, undo)
    return call.scheduler.made(effect)


T = TypeVar("T")
T1 = TypeVar("T1")
T2 = TypeVar("T2")
T3 = TypeVar("T3")
T4 = TypeVar("T4")
T5 = TypeVar("T5")
T6 = TypeVar("T6")

Op = Coroutine[Any, Any, T]
"""An operation: await it, pass it to ``gather`` or ``race``, or run it in a task."""


class OperationsContext(Protocol):
    """The ``BranchContext`` that has these methods."""

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
    """Run all operations concurrently and return their values in order.

    All of them finish, even if one fails; then the first error in order is raised. If one asks a
    question that cannot be asked, its ``CapabilityError`` is raised, and none is started.
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
    """Run all operations concurrently; return the value, or raise the error, of the first to end.

    The others are cancelled. The winner is recorded, so a replay does not race again.

    Raises:
        ValueError: if there is no operation.
    """
    if not operations:
        raise ValueError("race() needs at least one operation")
    call = self._call  # pyright: ignore[reportPrivateUsage] - as a method of the context
    scope = call.scheduler.scope()
    step_id = call.cursor.new_id(scope, "race")
    return call.scheduler.made(call.operations.race(scope, step_id, operations))

"""Exits: exceptions of an author's code that are no ``Exception``, as errors of its call.

asyncio passes ``SystemExit`` and ``KeyboardInterrupt`` on through the loop, past every handler: it
would end the process, and all other calls with it. Any other ``BaseException`` would pass by all
that records the end of a call and reports it.

Three are not the code's own, and are left alone: a cancellation, the end of a coroutine that is
closed, and what a signal raises in whatever code is running, as Ctrl-C does. A ``raise`` statement
raises neither of the last two, unless it stands in the signal's handler.
"""

from __future__ import annotations

import asyncio
import dis
import functools
import signal
from collections.abc import Callable, Coroutine, Generator
from contextlib import ContextDecorator
from contextvars import ContextVar
from traceback import walk_tb
from types import CodeType
from typing import Any, cast

_RAISE = dis.opmap["RAISE_VARARGS"]
_NOT_CARRIED = (SystemExit, KeyboardInterrupt, GeneratorExit)

runs_authors_code: ContextVar[bool] = ContextVar("runs_authors_code", default=False)
"""Whether tasks that are started here are to be :class:`Guarded`; set where a task is an author's."""


class _ExitAsError(ContextDecorator):
    """Raises ``RuntimeError`` where what runs inside raises no ``Exception``; also a decorator."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if (instead := error_instead(error)) is not None:
            raise instead


EXIT_AS_ERROR: _ExitAsError = _ExitAsError()
"""One for all: thousands of branches run inside of it."""


class Guarded(Coroutine[Any, Any, Any]):
    """The coroutine of a task, which raises no exit but an error instead.

    Two would end the loop; a ``GeneratorExit`` would close the coroutines that await the task.
    It shows the attributes of the coroutine itself. Another coroutine around that one would stay for
    as long, and a task that is cancelled before it starts would not end the inner one.
    """

    __slots__ = ("_inner",)

    def __init__(self, inner: Coroutine[Any, Any, Any] | Generator[Any, None, Any]) -> None:
        self._inner = inner

    def send(self, value: object) -> Any:  # noqa: ANN401 - whatever the coroutine waits for
        """Resume the coroutine."""
        try:
            return self._inner.send(cast("None", value))
        except _NOT_CARRIED as error:
            self._end(error)

    def throw(self, *error: Any) -> Any:  # noqa: ANN401 - as send()
        """Raise ``error`` in the coroutine."""
        try:
            return self._inner.throw(*error)
        except _NOT_CARRIED as raised:
            self._end(raised)

    def close(self) -> None:
        """End the coroutine."""
        self._inner.close()

    def _end(self, error: BaseException) -> None:
        if (instead := error_instead(error)) is not None:
            raise instead
        raise error

    def __await__(self) -> Generator[Any, Any, Any]:
        return (yield from cast("Coroutine[Any, Any, Any]", self._inner).__await__())

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - its frame, its state, its name
        return getattr(self._inner, name)


def error_instead(error: BaseException | None) -> Exception | None:
    """Return what is raised in place of ``error``; ``None`` if that stays as it is."""
    match error:
        case None | Exception() | asyncio.CancelledError():
            return None
        case KeyboardInterrupt() | GeneratorExit() if not _is_by_a_statement(error):
            return None
        case _:
            return None if _is_by_a_signal(error) else as_error(error)


def as_error(raised: BaseException) -> Exception:
    """Return what stands for ``raised`` where the code that raised it has ended."""
    match raised:
        case Exception():
            return raised
        case asyncio.CancelledError():
            what = "The call was cancelled from within, and has ended."
        case SystemExit():
            what = (
                f"sys.exit({raised.code!r}) was called. It ends this call; to end the server, stop"
                " its process."
            )
        case _:
            name = type(raised).__qualname__
            what = f"{name}({raised}) was raised, which is no Exception. It ends this call."
    error = RuntimeError(what)
    error.__cause__ = raised
    return error


def _is_by_a_statement(error: BaseException) -> bool:
    """Whether ``error`` began at a ``raise`` statement."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code.co_code[trace.tb_lasti] == _RAISE


def _is_by_a_signal(error: BaseException) -> bool:
    """Whether ``error`` was raised in the handler of a signal, that of ``asyncio.run`` for one."""
    handlers = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()}
    return any(frame.f_code in handlers for frame, _ in walk_tb(error.__traceback__))


def _code_of(handler: object) -> CodeType | None:
    while isinstance(handler, functools.partial):
        handler = cast("Callable[..., object]", handler.func)
    return getattr(getattr(handler, "__func__", handler), "__code__", None)

"""Runs a function of a tool's author on the loop or in a thread, and makes an entry of its outcome.

Exits such as ``SystemExit`` become errors here, or else one call would end the server's event loop.
"""

from __future__ import annotations

import asyncio
import dis
import functools
import inspect
import logging
import math
import signal
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import ContextDecorator
from contextvars import ContextVar
from functools import cache
from traceback import walk_tb
from types import CodeType
from typing import Any, NamedTuple, cast

import anyio
import anyio.to_thread

from anabranch._aio import wait_shielded
from anabranch._engine.codec import codec_of
from anabranch._engine.journal import Entry
from anabranch._text import printable_line
from anabranch.errors import SerializationError, StepFailed, author_line, error_to_json

_RAISE = dis.opmap["RAISE_VARARGS"]
_NOT_CARRIED = (SystemExit, KeyboardInterrupt, GeneratorExit)
"""The exits that no task can carry.

Two of them end the loop. A ``GeneratorExit`` closes the coroutines that await the task.
"""

runs_authors_code: ContextVar[bool] = ContextVar("runs_authors_code", default=False)
"""Whether tasks started here are :class:`Guarded`; set in a task that runs an author's code."""


class _ExitAsError(ContextDecorator):
    """Raises ``RuntimeError`` in place of an exit raised inside; usable as a decorator."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if (instead := error_instead(error)) is not None:
            raise instead


EXIT_AS_ERROR: _ExitAsError = _ExitAsError()
"""The one instance, because thousands of branches may run inside of it."""


class Guarded(Coroutine[Any, Any, Any]):
    """The coroutine of a task, which raises an error in place of an exit.

    An ``async def`` wrapper would take more memory, and a task that is cancelled before it starts
    would never close the inner coroutine.
    """

    __slots__ = ("_inner",)

    def __init__(self, inner: Coroutine[Any, Any, Any] | Generator[Any, None, Any]) -> None:
        self._inner = inner

    def send(self, value: object) -> Any:  # noqa: ANN401 - any awaited object
        try:
            return self._inner.send(cast("None", value))
        except _NOT_CARRIED as error:
            self._end(error)

    def throw(self, *error: Any) -> Any:  # noqa: ANN401 - as send()
        try:
            return self._inner.throw(*error)
        except _NOT_CARRIED as raised:
            self._end(raised)

    def close(self) -> None:
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
    """Return the error to raise in place of ``error``; ``None`` to raise ``error`` itself."""
    match error:
        case None | Exception() | asyncio.CancelledError():
            return None
        # By Ctrl-C, or by the close of a coroutine: no statement of the author's code has raised it.
        case KeyboardInterrupt() | GeneratorExit() if not _is_by_a_statement(error):
            return None
        case _:
            # Otherwise a handler that exits on SIGTERM could not end the process:
            # test_an_exception_of_a_signal_handler_stays_unchanged.
            return None if _is_by_a_signal(error) else as_error(error)


def as_error(raised: BaseException) -> Exception:
    """Return ``raised``, or the error that stands for it if it is no ``Exception``."""
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
    """Whether a signal handler raised ``error``, for instance the handler of ``asyncio.run``."""
    handlers = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()}
    return any(frame.f_code in handlers for frame, _ in walk_tb(error.__traceback__))


def _code_of(handler: object) -> CodeType | None:
    while isinstance(handler, functools.partial):
        handler = cast("Callable[..., object]", handler.func)
    return getattr(getattr(handler, "__func__", handler), "__code__", None)


logger: logging.Logger = logging.getLogger("anabranch.engine")

current_idempotency_key: ContextVar[str | None] = ContextVar("idempotency_key", default=None)
"""Name of the running step or undo, for the services that its function calls."""


def idempotency_key() -> str:
    """Return the idempotency key of the running step or undo.

    The key is the same in every attempt and every process. Pass it to a service that accepts
    idempotency keys, from a function without a ``ctx``, such as most undos.

    Raises:
        RuntimeError: if the caller is not inside a step or an undo.
    """
    key = current_idempotency_key.get()
    if key is None:
        raise RuntimeError("There is no idempotency key here: call this in a step or in an undo.")
    return key


class Effect(NamedTuple):
    """The work of a step; ``place`` is the step's number in its scope, or a phase, for the key."""

    function: Callable[..., Any]
    args: Sequence[Any]
    place: int | str
    undo: Callable[[Any], Any] | None = None


class Interrupted(asyncio.CancelledError):
    """The cancellation of a task while a thread ran; ``worker`` has the thread's outcome."""

    def __init__(self, worker: asyncio.Future[object]) -> None:
        super().__init__()
        self.worker = worker


class UnrecordedError(Exception):
    """The ``value`` of an effect that has happened cannot be recorded; ``error`` says why."""

    def __init__(self, error: SerializationError, value: object) -> None:
        super().__init__(str(error))
        self.error = error
        self.value = value


def is_async(function: Callable[..., object]) -> bool:
    call = getattr(type(function), "__call__", None)  # noqa: B004 - an object with async __call__
    return any(map(inspect.iscoroutinefunction, (inspect.unwrap(function), call)))


@cache
def _every_call() -> anyio.CapacityLimiter:
    """Return a limiter without a limit: a call limits its own threads, and waits for no other call."""
    return anyio.CapacityLimiter(math.inf)


async def run_function(function: Callable[..., object], *args: object) -> object:
    """Call ``function``: on the loop if it is ``async``, else in a thread.

    A thread cannot be interrupted. A cancelled caller awaits its end, and gets ``Interrupted`` with
    the outcome.
    """
    if is_async(function):
        with EXIT_AS_ERROR:
            return await cast("Awaitable[object]", function(*args))
    worker = asyncio.ensure_future(
        anyio.to_thread.run_sync(EXIT_AS_ERROR(function), *args, limiter=_every_call())
    )
    try:
        await asyncio.wait({worker})
    except asyncio.CancelledError:
        # A thread that is not awaited would act after the undos have run:
        # test_a_cancelled_strand_waits_for_its_thread_and_undoes_the_effect.
        await wait_shielded(worker)
        raise Interrupted(worker) from None
    value = worker.result()
    with EXIT_AS_ERROR:
        return await value if inspect.isawaitable(value) else value


Perform = Callable[[str, str, Effect, str], Awaitable[tuple[Entry, BaseException | None]]]
"""The type of :func:`perform`."""


async def perform(
    step_id: str, asked: str, effect: Effect, key: str
) -> tuple[Entry, BaseException | None]:
    """Run one effect under an idempotency ``key``; return the entry, and the exception with it, if any.

    The exception is an error of the function, or :class:`Interrupted` if a thread has completed the
    effect. A cancelled ``async`` effect leaves no entry.
    """
    codec = codec_of(effect.function)
    outer = current_idempotency_key.set(key)
    interrupted: Interrupted | None = None
    try:
        try:
            value = await run_function(effect.function, *effect.args)
        except Interrupted as end:
            interrupted = end
            value = end.worker.result()
            if inspect.iscoroutine(value):  # a plain function that returned work yet to be done
                value.close()
                raise asyncio.CancelledError from end
        try:
            return Entry("step", asked, codec.record(step_id, value), key=key), interrupted
        except SerializationError as error:
            raise UnrecordedError(error, value) from error
    except UnrecordedError:
        raise
    except Exception as error:  # noqa: BLE001 - every error of the author's effect is recorded
        known = error_to_json(error)
        if known is None:
            name = type(error).__name__
            known = error_to_json(StepFailed(step_id, name, str(error)))
            _log(step_id, error)
        return Entry("step", asked, error=known, key=key), interrupted or error
    finally:
        current_idempotency_key.reset(outer)


def _log(step_id: str, error: Exception) -> None:
    """Log a failed step in one line; ``ending.py`` logs the cause of an unhandled error."""
    place = author_line(error)
    text = printable_line(f"{type(error).__name__}: {error}{place and f' ({place})'}")
    logger.warning("step %r failed with %s", step_id, text)
    logger.debug("the traceback of step %r", step_id, exc_info=error)

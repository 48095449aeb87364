"""An author's function as an effect: run on the loop or in a thread, its outcome as an entry."""

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


logger: logging.Logger = logging.getLogger("anabranch.engine")

current_idempotency_key: ContextVar[str | None] = ContextVar("idempotency_key", default=None)
"""While a step's function, or an undo, runs: the name of its effect for the services that it calls."""


def idempotency_key() -> str:
    """Return the idempotency key of the step's function, or of the undo, that is running.

    It is the same each time that this effect is tried, in whatever process. A function that has no
    ``ctx``, as most undos, passes it on to services that accept one.

    Raises:
        RuntimeError: neither is running here.
    """
    key = current_idempotency_key.get()
    if key is None:
        raise RuntimeError("There is no idempotency key here: call this in a step or in an undo.")
    return key


class Effect(NamedTuple):
    """What a step does: ``function(*args)``, maybe with an undo.

    ``place`` names it in its scope, for its idempotency key: which step it is there, or a phase.
    """

    function: Callable[..., Any]
    args: Sequence[Any]
    place: int | str
    undo: Callable[[Any], Any] | None = None


class Interrupted(asyncio.CancelledError):
    """The strand was cancelled while a thread ran; the thread has ended, see ``worker``."""

    def __init__(self, worker: asyncio.Future[object]) -> None:
        super().__init__()
        self.worker = worker


class UnrecordedError(Exception):
    """An effect has happened, and its ``value`` cannot be recorded; ``error`` says why."""

    def __init__(self, error: SerializationError, value: object) -> None:
        super().__init__(str(error))
        self.error = error
        self.value = value


def is_async(function: Callable[..., object]) -> bool:
    """Whether calling ``function`` makes a coroutine."""
    call = getattr(type(function), "__call__", None)  # noqa: B004 - an object with async __call__
    return any(map(inspect.iscoroutinefunction, (inspect.unwrap(function), call)))


@cache
def _every_call() -> anyio.CapacityLimiter:
    """No limit of the process: a call limits its own threads, and does not wait for another's."""
    return anyio.CapacityLimiter(math.inf)


async def run_function(function: Callable[..., object], *args: object) -> object:
    """Call ``function``: on the loop if it is ``async``, else in a thread.

    Raises:
        Interrupted: the caller was cancelled while the thread ran. A thread cannot be interrupted,
            so its end is awaited first, and the error carries what came of it.
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
    """Run one effect under an idempotency ``key``.

    Returns:
        its entry, and the exception that came with it, if any: what its function raised; or
        :class:`Interrupted`, next to the entry of what a thread has completed. An ``async`` effect
        is cancelled as usual, and leaves no entry.

    Raises:
        UnrecordedError: the value cannot be recorded. The effect has happened all the same.
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
    except Exception as error:  # noqa: BLE001 - whatever the author's effect raises is recorded
        known = error_to_json(error)
        if known is None:
            name = type(error).__name__
            known = error_to_json(StepFailed(step_id, name, str(error)))
            _log(step_id, error)
        return Entry("step", asked, error=known, key=key), interrupted or error
    finally:
        current_idempotency_key.reset(outer)


def _log(step_id: str, error: Exception) -> None:
    """Log that a step has failed, in one line: its body may handle that (see ``ending.py``)."""
    place = author_line(error)
    text = printable_line(f"{type(error).__name__}: {error}{place and f' ({place})'}")
    logger.warning("step %r failed with %s", step_id, text)
    logger.debug("the traceback of step %r", step_id, exc_info=error)

"""Effects on the world: run once, recorded before their value is seen, undone in reverse.

Owns running a step's function and the undos that are owed. It never decides *whether* a step is
live: ``machine.py`` looks the id up first.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol, cast

from pydantic import JsonValue

from anabranch._engine.clock import Clock, pause
from anabranch._engine.codec import PLAIN, Codec, codec_of, reference_to, resolve
from anabranch._engine.journal import Entry, Journal, Owed, fingerprint
from anabranch.errors import SerializationError, StepFailed, error_to_json

__all__ = [
    "Effect",
    "Interrupted",
    "Undos",
    "current_idempotency_key",
    "is_async",
    "perform",
    "require_references",
    "step_fingerprint",
]


logger: logging.Logger = logging.getLogger("anabranch.engine")


class Receipts(Protocol):
    """What a payer of undos asks and tells; :class:`~anabranch._engine.recorder.Records` is one."""

    def check(self) -> None:
        """Return if this run may still do something new; raise if it is another's turn."""
        ...

    async def paid(self, step_id: str) -> None:
        """Write that the undo of ``step_id`` has been run."""
        ...


UNDO_AGAIN_AFTER = (0.2, 1.0)
"""Seconds until an undo that has failed is tried again, each time."""


def is_async(function: Callable[..., object]) -> bool:
    """Whether calling ``function`` makes a coroutine."""
    call = getattr(type(function), "__call__", None)  # noqa: B004 - an object with async __call__
    return any(map(inspect.iscoroutinefunction, (inspect.unwrap(function), call)))


async def run_function(function: Callable[..., object], *args: object) -> object:
    """Call ``function``: on the loop if it is ``async``, else in a thread.

    A thread cannot be interrupted: if the caller is cancelled meanwhile, the thread's end is
    awaited all the same and :class:`Interrupted` carries what came of it.
    """
    if is_async(function):
        return await cast("Awaitable[object]", function(*args))
    worker = asyncio.ensure_future(asyncio.to_thread(function, *args))
    interrupted = False
    while not worker.done():
        try:
            await asyncio.wait({worker})
        except asyncio.CancelledError:
            interrupted = True
    if interrupted:
        raise Interrupted(worker)
    value = worker.result()
    return await value if inspect.isawaitable(value) else value


class Interrupted(asyncio.CancelledError):
    """The strand was cancelled while a thread ran; the thread has ended, see ``worker``."""

    def __init__(self, worker: asyncio.Future[object]) -> None:
        super().__init__()
        self.worker = worker


current_idempotency_key: ContextVar[str | None] = ContextVar("idempotency_key", default=None)
"""While a step's function runs: the name of its effect for the services that it calls."""


class Effect(NamedTuple):
    """What a step does: ``function(*args)``, maybe with an undo.

    ``place`` names it in its scope, for its idempotency key: which step it is there, or a phase.
    """

    function: Callable[..., Any]
    args: Sequence[Any]
    place: int | str
    undo: Callable[[Any], Any] | None = None


async def perform(
    step_id: str, asked: str, effect: Effect, key: str
) -> tuple[Entry, BaseException | None]:
    """Run one effect under an idempotency ``key`` and return its entry, with the exception that came with it, if any.

    That is what its function raised; or :class:`Interrupted`, next to the entry of what a thread
    has done to its end. An ``async`` effect is cancelled as usual, and leaves no entry.

    Raises:
        SerializationError: the value cannot be recorded. The effect has happened all the same,
            which is why the call cannot go on.
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
                raise
        return Entry("step", asked, codec.encode(step_id, value)), interrupted
    except SerializationError:
        raise
    except Exception as error:  # noqa: BLE001 - the author's effect may raise anything; it is recorded
        known = error_to_json(error)
        if known is None:
            name = type(error).__name__
            known = error_to_json(StepFailed(step_id, name, str(error)))
            logger.warning("step %r failed with %s: %r", step_id, name, str(error))
        return Entry("step", asked, error=known), interrupted or error
    finally:
        current_idempotency_key.reset(outer)


def step_fingerprint(function: Callable[..., object], args: Sequence[Any]) -> str:
    """Pin the function's name and its arguments; those that are not JSON, by their type."""
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    try:
        return fingerprint(name, *args)
    except (TypeError, ValueError, RecursionError):
        return fingerprint(name, *map(_pinned, args))


def _pinned(value: object) -> JsonValue:
    try:
        return [fingerprint(PLAIN.encode("", value))]
    except SerializationError:
        return type(value).__qualname__


def require_references(step_id: str, effect: Effect) -> None:
    """Refuse an undo that could not be found again by name.

    A step of a race's loser is not run again in a replay, so that its undo is not bound there;
    the step's function tells how to read the value that the undo gets.

    Raises:
        SerializationError: naming ``step_id``.
    """
    for what, function in (("undo", effect.undo), ("step", effect.function)):
        if function is not None and reference_to(function) is None:
            raise SerializationError(
                step_id, "function", f"inside race() the {what} must be found in its module by name"
            )


class Undos:
    """The undos that a call owes, and the functions that pay them.

    The journal knows them by step; the functions are bound each time the body reaches the step,
    in its first run and in replays. A folded step is not reached again: its undo is found by
    name.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._bound: dict[str, tuple[Callable[..., Any], Codec]] = {}
        self._known_before = len(journal.owed)
        self._paying: asyncio.Lock = asyncio.Lock()

    def bind(self, step_id: str, effect: Effect, *, first: bool) -> None:
        """Remember how to undo ``step_id``; ``first`` when its effect has just been run."""
        if effect.undo is None:
            return
        self._bound[step_id] = (effect.undo, codec_of(effect.function))
        if first:
            undo, step = reference_to(effect.undo), reference_to(effect.function)
            self._journal.owed.append(Owed(step_id, undo, step))

    def correct(self, step_id: str, effect: Effect, *, done: bool) -> None:
        """Take back or add what ``step_id`` owes: another run was first, with another outcome."""
        self._journal.owed[:] = [owed for owed in self._journal.owed if owed.step_id != step_id]
        if done:
            self.bind(step_id, effect, first=True)

    def can_fold(self, step_ids: set[str]) -> bool:
        """Whether every undo among these steps can be found again by name."""
        return all(
            owed.undo is not None and owed.step is not None
            for owed in self._journal.owed
            if owed.step_id in step_ids
        )

    async def pay(
        self, clock: Clock, receipts: Receipts, *, this_round_only: bool = False
    ) -> list[BaseException]:
        """Run the undos in reverse order and return what went wrong with them.

        One that fails is tried again, a little later each time. If it fails still, it does not
        keep the others from running, and stays in ``journal.owed``. ``receipts`` is asked before
        each, and told after each that has not failed.
        ``this_round_only`` leaves alone what an earlier round owed: for a round whose outcome
        reached nobody, so that the same round may be tried again.

        Raises:
            Exception: what ``receipts`` raises; the rest stays in ``journal.owed``.
        """
        # A thread may end, and have its step undone, while the others are being paid.
        async with self._paying:
            return await self._pay(clock, receipts, this_round_only=this_round_only)

    async def _pay(
        self, clock: Clock, receipts: Receipts, *, this_round_only: bool
    ) -> list[BaseException]:
        keep = self._known_before if this_round_only else 0
        failed: list[BaseException] = []
        unpaid: list[Owed] = []
        owed = self._journal.owed
        try:
            while len(owed) > keep:
                item = owed[-1]
                receipts.check()
                error = await self._pay_one(item, clock)
                if error is None:
                    await receipts.paid(item.step_id)
                else:
                    logger.error("the undo of step %r failed", item.step_id, exc_info=error)
                    failed.append(error)
                    unpaid.append(item)
                owed.remove(item)
        finally:
            owed += reversed(unpaid)
        return failed

    async def _pay_one(self, owed: Owed, clock: Clock) -> Exception | None:
        try:
            undo, value = self._find(owed)
        except Exception as error:  # noqa: BLE001 - the author's modules may raise anything
            return error
        delays = iter(UNDO_AGAIN_AFTER)
        while True:
            try:
                await run_function(undo, value)
            except Exception as error:  # noqa: BLE001 - as may the author's undo
                delay = next(delays, None)
                if delay is None:
                    return error
                logger.warning(
                    "the undo of step %r failed: %r; again in %g s", owed.step_id, error, delay
                )
                await pause(clock, delay)
            else:
                return None

    def _find(self, owed: Owed) -> tuple[Callable[..., Any], Any]:
        entry = self._journal.entries.get(owed.step_id)
        recorded = owed.value if owed.folded or entry is None else entry.value
        if owed.step_id in self._bound:
            undo, codec = self._bound[owed.step_id]
        else:
            undo, codec = resolve(owed.undo or ""), codec_of(resolve(owed.step or ""))
        return undo, codec.decode(owed.step_id, recorded)

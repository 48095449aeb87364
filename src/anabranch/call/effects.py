"""Effects on the world: run once, recorded before their value is seen, undone in reverse.

Owns running a step's function and the undos that are owed. It never decides *whether* a step is
live: ``machine.py`` looks the id up first.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple

from anabranch.call.codec import Codec, codec_of, reference_to, resolve
from anabranch.call.journal import Entry, Journal, Owed
from anabranch.call.strands import Strand
from anabranch.errors import SerializationError, StepFailed, error_to_json

__all__ = ["Effect", "Interrupted", "Undos", "current_idempotency_key", "is_async", "perform"]

logger = logging.getLogger("anabranch.call")


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling ``function`` makes a coroutine."""
    call = getattr(type(function), "__call__", None)  # noqa: B004 - an object with async __call__
    return inspect.iscoroutinefunction(inspect.unwrap(function)) or inspect.iscoroutinefunction(call)


async def run_function(function: Callable[..., Any], *args: Any) -> Any:
    """Call ``function``: on the loop if it is ``async``, else in a thread.

    A thread cannot be interrupted: if the caller is cancelled meanwhile, the thread's end is
    awaited all the same and :class:`Interrupted` carries what came of it.
    """
    if is_async(function):
        return await function(*args)
    worker = asyncio.ensure_future(asyncio.to_thread(function, *args))
    interrupted = False
    while not worker.done():
        try:
            await asyncio.wait({worker})
        except asyncio.CancelledError:
            interrupted = True
    value = worker.result()
    if interrupted:
        raise Interrupted(value)
    return await value if inspect.isawaitable(value) else value


class Interrupted(asyncio.CancelledError):
    """The strand was cancelled while a thread ran; the thread has ended with ``value``."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


current_idempotency_key: ContextVar[str | None] = ContextVar("idempotency_key", default=None)
"""While a step's function runs: the name of its effect for the services that it calls."""


class Effect(NamedTuple):
    """What a step does: ``function(*args)``, under an idempotency ``key``, maybe with an undo."""

    function: Callable[..., Any]
    args: Sequence[Any]
    key: str
    undo: Callable[[Any], Any] | None = None


async def perform(
    strand: Strand, step_id: str, asked: str, effect: Effect
) -> tuple[Entry, BaseException | None]:
    """Run one effect and return its entry, with the exception that came with it, if any.

    That is what its function raised; or :class:`Interrupted`, next to the entry of an effect
    that a thread has completed. An ``async`` effect is cancelled as usual, and leaves no entry.

    Raises:
        SerializationError: the value cannot be recorded. The effect has happened all the same,
            which is why the call cannot go on.
    """
    codec = codec_of(effect.function)
    strand.effects += 1
    outer = current_idempotency_key.set(effect.key)
    try:
        value = await run_function(effect.function, *effect.args)
        return Entry("step", asked, codec.encode(step_id, value)), None
    except Interrupted as interrupted:
        return Entry("step", asked, codec.encode(step_id, interrupted.value)), interrupted
    except SerializationError:
        raise
    except Exception as error:
        known = error_to_json(error)
        if known is None:
            name = type(error).__name__
            known = error_to_json(StepFailed(step_id, name, str(error)))
            logger.warning("step %r failed with %s: %r", step_id, name, str(error))
        return Entry("step", asked, error=known), error
    finally:
        current_idempotency_key.reset(outer)
        strand.effects -= 1
        strand.call.stir()


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

    def bind(self, step_id: str, effect: Effect, *, first: bool) -> None:
        """Remember how to undo ``step_id``; ``first`` when its effect has just been run."""
        if effect.undo is None:
            return
        self._bound[step_id] = (effect.undo, codec_of(effect.function))
        if first:
            undo, step = reference_to(effect.undo), reference_to(effect.function)
            self._journal.owed.append(Owed(step_id, undo, step))

    def can_fold(self, step_ids: set[str]) -> bool:
        """Whether every undo among these steps can be found again by name."""
        return all(
            owed.undo is not None and owed.step is not None
            for owed in self._journal.owed
            if owed.step_id in step_ids
        )

    def fold(self, step_ids: set[str]) -> None:
        """Take the values of these steps over before their entries are dropped."""
        for owed in self._journal.owed:
            if owed.step_id in step_ids and not owed.folded:
                owed.value = self._journal.entries[owed.step_id].value
                owed.folded = True

    async def pay(self, *, this_round_only: bool = False) -> list[BaseException]:
        """Run the undos in reverse order and return what went wrong with them.

        One that fails does not keep the others from running; it stays in ``journal.owed``.
        ``this_round_only`` leaves alone what an earlier round owed: for a round whose outcome
        reached nobody, so that the same round may be tried again.
        """
        keep = self._known_before if this_round_only else 0
        owed, self._journal.owed = self._journal.owed[keep:], self._journal.owed[:keep]
        failed: list[BaseException] = []
        for item in reversed(owed):
            try:
                undo, value = self._find(item)
                await run_function(undo, value)
            except Exception as error:
                logger.exception("the undo of step %r failed", item.step_id)
                self._journal.owed.append(item)
                failed.append(error)
        return failed

    def _find(self, owed: Owed) -> tuple[Callable[..., Any], Any]:
        entry = self._journal.entries.get(owed.step_id)
        recorded = owed.value if owed.folded or entry is None else entry.value
        if owed.step_id in self._bound:
            undo, codec = self._bound[owed.step_id]
        else:
            undo, codec = resolve(owed.undo or ""), codec_of(resolve(owed.step or ""))
        return undo, codec.decode(owed.step_id, recorded)

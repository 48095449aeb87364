"""Compensations: the undos that run, in reverse order, when a call fails.

The body binds an undo's function each time it reaches the step. No replay reaches a folded step, so
its undo is found by name.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from anabranch._aio import Clock, first_of, pause
from anabranch._engine.codec import Codec, codec_of, reference_to, resolve
from anabranch._engine.functions import (
    Effect,
    as_error,
    current_idempotency_key,
    run_function,
    runs_authors_code,
)
from anabranch._engine.journal import Compensation, Journal
from anabranch._engine.recorder import Observe, Records, unobserved
from anabranch.errors import SerializationError

logger: logging.Logger = logging.getLogger("anabranch.engine")

RETRY_AFTER = (0.2, 1.0)
"""Seconds before each repetition of an undo that has failed."""


class Compensations:
    """The undos of one call, and the functions that run them. Records allow each undo."""

    def __init__(
        self, journal: Journal, clock: Clock, records: Records, observe: Observe = unobserved
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._records = records
        self._observe = observe
        self._bound: dict[str, tuple[Callable[..., Any], Codec]] = {}
        self._known_before = len(journal.compensations)
        self._running: asyncio.Lock = asyncio.Lock()
        self._begun_with: int | None = None

    def bind(self, step_id: str, function: Callable[..., Any], undo: Callable[..., Any]) -> None:
        self._bound[step_id] = (undo, codec_of(function))

    def add(self, step_id: str, effect: Effect) -> None:
        """Add the undo of ``step_id``, whose effect has just run, to the call's undos."""
        if effect.undo is not None:
            self.bind(step_id, effect.function, effect.undo)
            undo, step = reference_to(effect.undo), reference_to(effect.function)
            self._journal.compensations.append(Compensation(step_id, undo, step))

    def correct(self, step_id: str, effect: Effect, *, done: bool) -> None:
        """Add the undo of a step if another run recorded the step as ``done``; else remove the undo."""
        due = self._journal.compensations
        due[:] = [one for one in due if one.step_id != step_id]
        if done:
            self.add(step_id, effect)

    def can_fold(self, step_ids: set[str]) -> bool:
        """Whether a later round can find the undo of each of these steps by name."""
        # An undo without a name would be lost with its entry:
        # test_a_branch_that_owes_an_undo_without_a_name_is_not_folded.
        return all(
            due.undo is not None and due.step is not None
            for due in self._journal.compensations
            if due.step_id in step_ids
        )

    async def run(self, *, this_round_only: bool = False) -> list[BaseException]:
        """Run the undos in reverse order and return the errors of those that fail.

        An undo that still fails after its retries stays in ``journal.compensations``, as does the
        rest if the recorder raises. With ``this_round_only``, the undos of earlier rounds do not
        run: the outcome of this round never left the server, so that the round may be tried again.
        """
        self._begun_with = self._known_before if this_round_only else 0
        return await self._run_down_to(self._begun_with)

    async def run_late(self) -> None:
        """Run the undos that threads have added after :meth:`run`; do nothing before :meth:`run`."""
        if self._begun_with is not None:
            await self._run_down_to(self._begun_with)

    async def undo_now(self, step_id: str, effect: Effect, value: object) -> None:
        """Undo an effect whose ``value`` no journal can hold; a failure of the undo is logged."""
        if effect.undo is None:
            return
        try:
            with self._observe("undo", step_id):
                await self._repeat(step_id, effect.undo, value)
        except Exception:
            logger.exception("the undo of step %r failed; its value is not recorded", step_id)

    async def _run_down_to(self, count: int) -> list[BaseException]:
        failed: list[BaseException] = []
        remaining: list[Compensation] = []
        # A thread may end, and have its step undone, while the others are being undone.
        async with self._running:
            due = self._journal.compensations
            try:
                while len(due) > count:
                    one = due[-1]
                    self._records.check()
                    error = await self._undo(one)
                    if error is None:
                        await self._records.undone(one.step_id)
                    else:
                        logger.error("the undo of step %r failed", one.step_id, exc_info=error)
                        failed.append(error)
                        remaining.append(one)
                    due.remove(one)
            finally:
                due += reversed(remaining)
        return failed

    async def _undo(self, due: Compensation) -> Exception | None:
        try:
            with self._observe("undo", due.step_id):
                await self._repeat(due.step_id, *self._find(due))
        except Exception as error:  # noqa: BLE001 - the author's modules and undos may raise anything
            return error
        return None

    async def _repeat(self, step_id: str, undo: Callable[..., Any], value: object) -> None:
        delays = iter(RETRY_AFTER)
        # Under the step's own key, a service would take the undo for a repeated step:
        # test_each_attempt_of_an_undo_has_another_key.
        key = f"{self._journal.line}:{step_id}/undo"
        while True:
            try:
                await _run_undo(undo, value, key)
            except Exception as error:
                delay = next(delays, None)
                if delay is None:
                    raise
                logger.warning(
                    "the undo of step %r failed: %r; retrying in %g s", step_id, error, delay
                )
                await pause(self._clock, delay)
            else:
                return

    def _find(self, due: Compensation) -> tuple[Callable[..., Any], Any]:
        entry = self._journal.entries.get(due.step_id)
        recorded = due.value if due.folded or entry is None else entry.value
        if due.step_id in self._bound:
            undo, codec = self._bound[due.step_id]
        else:
            undo, codec = resolve(due.undo or ""), codec_of(resolve(due.step or ""))
        return undo, codec.decode(due.step_id, recorded)


async def _run_undo(undo: Callable[..., Any], value: object, key: str) -> None:
    outer = current_idempotency_key.set(key)
    try:
        # In a task of its own: an undo that cancels itself has failed, and cancels no one else.
        _, ended = await first_of([_run_guarded(undo, value)])
    finally:
        current_idempotency_key.reset(outer)
    error = asyncio.CancelledError() if ended.cancelled() else ended.exception()
    if error is not None:
        raise as_error(error)


async def _run_guarded(undo: Callable[..., Any], value: object) -> None:
    runs_authors_code.set(True)
    await run_function(undo, value)


def require_references(step_id: str, effect: Effect) -> None:
    """Refuse an undo that a replay could not find by name.

    A replay does not run the steps of a race's loser, so nothing binds their undos there.
    """
    for what, function in (("undo", effect.undo), ("step", effect.function)):
        if function is not None and reference_to(function) is None:
            raise SerializationError(
                step_id, "function", f"inside race() the {what} must be found in its module by name"
            )

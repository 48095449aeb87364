"""Effects: run a step's function once per call, and record its outcome before the body sees it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from typing import Any

from anabranch._engine.codec import codec_of
from anabranch._engine.compensations import Compensations, require_references
from anabranch._engine.cursor import ReplayCursor
from anabranch._engine.functions import (
    Effect,
    Interrupted,
    Perform,
    UnrecordedError,
    is_async,
    perform,
)
from anabranch._engine.journal import Entry
from anabranch._engine.recorder import Observe, Records, unobserved
from anabranch._engine.scheduler import Scheduler
from anabranch._engine.strands import Scope, Strand
from anabranch.errors import AnabranchError, error_from_json

STEP_THREADS = 8
"""Threads for the synchronous steps of one call, unless its edge says otherwise."""


class Effects:
    def __init__(
        self,
        cursor: ReplayCursor,
        scheduler: Scheduler,
        records: Records,
        compensations: Compensations,
        perform: Perform = perform,
        step_threads: int = STEP_THREADS,
        observe: Observe = unobserved,
    ) -> None:
        self._cursor = cursor
        self._scheduler = scheduler
        self._records = records
        self._compensations = compensations
        self._perform = perform
        self._observe = observe
        self._threads = asyncio.Semaphore(step_threads)

    async def step(
        self,
        scope: Scope,
        step_id: str,
        asked: str,
        function: Callable[..., Any],
        args: Sequence[Any],
        place: int | str,
        undo: Callable[[Any], Any] | None = None,
    ) -> Any:  # noqa: ANN401 - the type is the effect's
        """Run an :class:`Effect` once per call and return its value, now and in every replay.

        The parts of the effect are separate arguments, because most steps are replayed and need no
        ``Effect``. If the value cannot be recorded, the call fails: before the function runs if its
        annotation shows that, otherwise after its undo.
        """
        if (fault := self._cursor.fault) is not None:
            await self._scheduler.raise_fault(step_id, fault)
        entry = self._cursor.recall(step_id, "step", asked, scope.branch)
        if entry is None:
            effect = Effect(function, args, place, undo)
            with self._observe("step", step_id):
                entry = await self._run(scope, step_id, asked, effect)
        elif entry.error is not None:
            raise error_from_json(entry.error)
        # Otherwise the undo of a step from an earlier round would not be found:
        # test_an_undo_gets_the_value_as_every_replay_sees_it.
        elif undo is not None:
            self._compensations.bind(step_id, function, undo)
        return codec_of(function).decode(step_id, entry.value)

    def key_of(self, scope: Scope, place: int | str) -> str:
        journal = self._cursor.journal
        if isinstance(place, str):
            return f"{journal.line}:{scope.path}/{place}"
        return f"{journal.line_of(scope.path, place)}:{scope.path}/step.{place}"

    async def _run(self, scope: Scope, step_id: str, asked: str, effect: Effect) -> Entry:
        cursor = self._cursor
        strand = await self._scheduler.go_live(scope, step_id)
        # A replay does not run a loser, so its undo would be lost:
        # test_in_a_race_a_step_with_an_undo_must_be_found_by_name.
        if effect.undo is not None and strand.racing:
            require_references(step_id, effect)
        # Otherwise the effect would happen, and its value could never be recorded:
        # test_an_effect_does_not_happen_when_its_annotation_has_no_json.
        codec_of(effect.function).require_writable(step_id)
        async with self.running(strand):
            try:
                key = self.key_of(scope, effect.place)
                async with nullcontext() if is_async(effect.function) else self._threads:
                    entry, cause = await self._perform(step_id, asked, effect, key)
            except UnrecordedError as unrecorded:
                # Without an entry, no later undo would find this effect:
                # test_an_effect_is_undone_when_its_value_cannot_survive_the_record.
                await self._compensations.undo_now(step_id, effect, unrecorded.value)
                # A body that catches the error would continue without a record:
                # test_a_value_that_cannot_be_recorded_ends_the_call_even_if_it_is_caught.
                raise cursor.fail(unrecorded.error) from unrecorded
            except AnabranchError as error:
                cursor.fail(error)
                raise
            cursor.record(step_id, entry, scope.branch)
            if entry.error is None:
                self._compensations.add(step_id, effect)
        # Undos have run already, and would leave out this step:
        # test_the_effect_of_a_thread_that_ends_last_is_undone.
        if entry.error is None:  # the call may have failed while a thread ran
            await self._compensations.run_late()
        if isinstance(cause, Interrupted):
            raise asyncio.CancelledError from cause  # asyncio.timeout knows no subclass of it
        first = cursor.recorded(step_id) or entry  # another run's entry, if any
        # Otherwise the call would undo a step that failed, or keep one that succeeded:
        # test_a_run_succeeds_and_owes_the_undo_if_the_first_run_succeeded.
        if (first.error is None) != (entry.error is None):
            self._compensations.correct(step_id, effect, done=first.error is None)
        if first.error is not None:
            raise error_from_json(first.error) from cause
        return first

    @asynccontextmanager
    async def running(self, strand: Strand) -> AsyncGenerator[None]:
        """Mark ``strand``, a task of the call, as busy in the block; write new entries around it.

        Entries are written before the effect, because a second attempt under the same idempotency
        key must depend on the same values.
        """
        await self._scheduler.may_begin()
        with self._scheduler.effect(strand):
            await self._write(self._records.write_ahead)
            # The effect would happen in a round that is over:
            # test_no_effect_starts_while_the_run_closes.
            if self._scheduler.closing:  # while that was being written
                raise asyncio.CancelledError
            yield
            await self._write(self._records.write)

    async def _write(self, write: Callable[[], Awaitable[None]]) -> None:
        try:
            await write()
        except Exception as error:
            # The body would continue, and undo steps that the next attempt needs:
            # test_a_live_run_that_cannot_write_ends_like_a_crash_without_undos.
            self._scheduler.abort(error)
            raise asyncio.CancelledError from error

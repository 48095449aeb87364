"""A call: runs a body over a journal until the body has ended or waits for answers.

A *round* is one run of the body, from the top until it ends or waits. An edge (a server, a chat, a
test) drives a call in one of two ways:

    outcome = await call.round()        a cold edge: one round; the next continues from the journal
    async for ask in call.asks(): ...   a hot edge: the body stays alive while answers come in
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Generic, NoReturn, TypeVar, cast

from anabranch._aio import Clock, SystemClock, cancel_and_wait, run_shielded
from anabranch._budget import Limits
from anabranch._engine.branch import Branch
from anabranch._engine.canary import check_support
from anabranch._engine.compensations import Compensations
from anabranch._engine.cursor import ReplayCursor
from anabranch._engine.effects import STEP_THREADS, Effects
from anabranch._engine.ending import Ended, Ending, Finished, Progress, Stopped, Waiting
from anabranch._engine.folding import Branches
from anabranch._engine.functions import EXIT_AS_ERROR, Perform, perform, runs_authors_code
from anabranch._engine.journal import Answer, Ask, Entry, Journal
from anabranch._engine.markers import Markers
from anabranch._engine.open_asks import OpenAsks, is_asleep, take_late, wakes_at
from anabranch._engine.operations import Operations, Sink, discard
from anabranch._engine.quiescence import GRACE, Quiet
from anabranch._engine.recorder import Observe, Recorder, Records, unobserved
from anabranch._engine.scheduler import Scheduler
from anabranch._engine.strands import Scope, Strand, current_strand, install_task_factory
from anabranch.errors import AnabranchError, SuspensionError

T = TypeVar("T")


class Call(Generic[T]):
    """One run of ``body`` over ``journal``. Use as an async context manager, on one loop.

    Leaving the context cancels a body that still runs and runs its undos. The edge decides which:

        hot run                every undo of the call
        cold run               the undos of this round; earlier rounds may be continued elsewhere
        cold run, recorded     none, since this round may be tried again; running steps finish first

    The ``name`` is the path of the root branch, and a timeout of ``limits`` counts from
    ``journal.started``. ``on_fault`` is called immediately with an error that ends the call
    whatever its body does. ``patience`` is the seconds that work outside of steps may hold back an
    open ask in a cold run.
    """

    def __init__(  # noqa: PLR0913 - the surroundings of a run, by keyword
        self,
        body: Callable[[Branch], Coroutine[Any, Any, T]],
        journal: Journal,
        *,
        name: str,
        limits: Limits | None = None,
        clock: Clock | None = None,
        sink: Sink = discard,
        recorder: Recorder | None = None,
        perform: Perform = perform,
        step_threads: int = STEP_THREADS,
        on_fault: Callable[[AnabranchError], None] | None = None,
        patience: float | None = None,
        observe: Observe = unobserved,
    ) -> None:
        self.journal: Journal = journal
        clock = clock or SystemClock()
        cursor = ReplayCursor(journal, name, recording=recorder is not None, on_fault=on_fault)
        scheduler = Scheduler(self, journal.call_id)
        records = Records(cursor, recorder)
        compensations = Compensations(journal, clock, records, observe)
        effects = Effects(cursor, scheduler, records, compensations, perform, step_threads, observe)
        self._open: OpenAsks = OpenAsks()
        self._ending = Ending(cursor, scheduler, records, compensations)
        self.cursor: ReplayCursor = cursor
        self.scheduler: Scheduler = scheduler
        self.compensations: Compensations = compensations
        self.effects: Effects = effects
        self.operations: Operations = Operations(
            cursor, scheduler, effects, self._open, clock, sink, observe
        )
        self.markers: Markers = Markers(cursor, scheduler)
        self.branches: Branches = Branches(cursor, scheduler, compensations, clock, observe)
        self._root = cursor.budgets.branch(None, name, limits or Limits())
        self._body = body
        self._task: asyncio.Task[T] | None = None
        self._cold = False
        self._patience = patience
        self._clock = clock
        self._late: dict[str, Entry] = {}
        self._ended: Ended | None = None
        self._answering_failed: Exception | None = None

    # -- driving -----------------------------------------------------------------------------

    async def __aenter__(self) -> Call[T]:
        await check_support()
        install_task_factory()
        if self._root.timeout is not None:
            self.journal.deadlines.setdefault(
                self._root.path, self.journal.started + self._root.timeout
            )
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._task is not None and not self._ending.is_settled:
            if self._task.done() and not self._task.cancelled():
                self._task.exception()  # looked at: the caller does not ask for it any more
            await run_shielded(self._ending.leave(cold=self._cold))

    def _start(self, *, cold: bool) -> asyncio.Task[T]:
        if self._task is not None:
            raise RuntimeError("A Call runs once: build another one for the next round.")
        self._cold = cold
        scope = Scope(self._root, self._root.path)
        self._task = self.scheduler.start(self._run(), scope, watch=cold, patience=self._patience)
        return self._task

    async def _run(self) -> T:
        runs_authors_code.set(True)
        try:
            with EXIT_AS_ERROR:
                return await self.branches.start(self._root, self._body)
        finally:
            self.scheduler.changed.set()  # one pass of the loop sooner than the task reports it

    async def round(self) -> Finished[T] | Waiting:
        """Run until the body has ended, or until its result waits for an answer.

        After ``Waiting``, ``journal`` holds all that the next round needs, and this object is
        spent; without a question, the call sleeps. If the body raises, its undos have run; if the
        recorder raises, no undo runs.
        """
        scheduler = self.scheduler
        self._late = take_late(self.journal, self._clock.now())
        progress = Progress(self.journal, self.cursor.name)
        task = self._start(cold=True)
        await scheduler.changed.wait()
        if scheduler.failure is not None:
            await scheduler.cancel_and_wait()
            raise scheduler.failure
        if self._ended is None:
            return Finished(await self._ending.conclude(task))
        await scheduler.cancel_and_wait()
        # A body that swallows its cancellation would act beyond the round's end:
        # test_a_body_that_swallows_its_cancellation_and_returns_is_named_by_its_question.
        scheduler.check_suspended({task, *self._ended.asked_by})
        if self._ended.quiet.certain:
            self.cursor.check_all_reached(None)
        if self.fault is None and (stalled := progress.check(self._ended.quiet)) is not None:
            self.cursor.fail(stalled)
        if self.fault is not None:
            await self._ending.fail(self.fault)
        self._ending.is_settled = True
        self.journal.rounds += 1
        return Waiting(self._ended.asks)

    async def replay(self) -> Finished[T] | Stopped:
        """Run the body over the record: no effect, question, notice or undo happens."""
        task, scheduler = self._begin_replay(), self.scheduler
        await scheduler.changed.wait()
        ended = self._ended
        error: BaseException | None = scheduler.failure
        if ended is None and error is None:
            error = await self._ending.error_of(task)
        await scheduler.cancel_and_wait()
        if ended is not None and ended.quiet.certain:
            self.cursor.check_all_reached(None)
        self._ending.is_settled = True
        if (error := error or self.fault) is not None:
            raise error
        return Finished(task.result()) if ended is None else Stopped(tuple(scheduler.stalled))

    async def unwind(self, error: BaseException) -> NoReturn:
        """End the call with ``error``: start no new operation, and run every undo in the journal.

        The body runs over the record, which binds the undos to their steps. Nothing would end a
        wait of the body for a device, so this method does not wait for the body's end.
        """
        self._begin_replay()
        while not self.scheduler.changed.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(GRACE):
                    await self.scheduler.changed.wait()
            # Otherwise a body that waits for a device would keep the undos from running:
            # test_a_call_whose_body_waits_for_ever_is_unwound.
            if self.cursor.has_reached_all():
                break
        await self.scheduler.cancel_and_wait()
        await self._ending.fail(error)

    def _begin_replay(self) -> asyncio.Task[T]:
        self.scheduler.replaying = True
        return self._start(cold=True)

    async def asks(self) -> AsyncIterator[Ask]:
        """Yield each ask when the body makes it, until the body ends; :meth:`answer` each."""
        task = self._start(cold=False)
        changed = self.scheduler.changed
        while True:
            while (ask := self._open.next_unseen()) is not None:
                yield ask
            if task.done() or self._failure is not None:
                return
            changed.clear()
            await changed.wait()

    def answer(self, step_id: str, answer: Answer) -> bool:
        """Answer an open ask of a hot run; return whether the ask was open."""
        return self.operations.answer(step_id, answer)

    def is_open(self, step_id: str) -> bool:
        return self._open.is_open(step_id)

    async def result(self) -> T:
        """Return the value of a hot run's body, once :meth:`asks` has ended; raise as :meth:`round` does."""
        if self._failure is not None:
            raise self._failure
        if self._task is None or not self._task.done():
            raise RuntimeError("A call has no result before asks() has ended.")
        return await self._ending.conclude(self._task)

    async def drive(self, answerer: Callable[[Ask], Awaitable[Answer]]) -> T:
        """Run hot until the body has ended; call ``answerer`` for each ask, concurrently.

        A withdrawn ask (a lost race, a timeout) cancels the task of its ``answerer``. Raises as
        :meth:`round` does. An error of ``answerer`` ends the call.
        """

        async def answer_one(ask: Ask) -> None:
            try:
                self.answer(ask.step_id, await answerer(ask))
            except Exception as error:  # noqa: BLE001 - raised again by drive(), when all has ended
                self._answering_failed = self._failure or error
                self.scheduler.changed.set()

        try:
            async for ask in self.asks():
                self._open.answer_with(ask.step_id, asyncio.ensure_future(answer_one(ask)))
        finally:
            await cancel_and_wait(self._open.answering())
        return await self.result()

    def abort(self, error: Exception) -> None:
        """End the run here, as a crash would: no undo runs. :meth:`result` raises ``error``."""
        self.scheduler.abort(error)

    @property
    def _failure(self) -> Exception | None:
        """The first error that has ended the run from outside of the body."""
        return self._answering_failed or self.scheduler.failure

    # -- reports of the scheduler ----------------------------------------------------------

    @property
    def fault(self) -> AnabranchError | None:
        """The error that ends the call even if the body catches it, such as a replay that differs."""
        return self.cursor.fault

    def seconds_asleep(self) -> float | None:
        sleeps = is_asleep(self.journal) and not (self.scheduler.replaying or self.journal.held)
        when = wakes_at(self.journal) if sleeps else None
        return None if when is None else when - self._clock.now()

    def answer_late(self) -> bool:
        """Give the body the answers that came after a sleep's time; without any, decide markers."""
        late, self._late = self._late, {}
        return self.operations.answer_late(late) or self.markers.resume()

    def on_quiet(self, quiet: Quiet) -> None:
        """End the round with the asks that are open now."""
        self._ended = Ended(self._open.asks(), self._open.by_task(), quiet)
        self.scheduler.suspend()

    def on_strand_ended(self, strand: Strand) -> None:
        """Record that ``strand`` has ended, and whether the program has cancelled it."""
        scheduler = self.scheduler
        if strand.task is self._task:
            scheduler.stop_watching()
            scheduler.changed.set()
        elif strand.task.cancelled():
            if not scheduler.suspending:
                self.cursor.cancel(strand.path)
        elif scheduler.closing:
            strand.task.exception()  # looked at: the call's own outcome says what happened

    def on_not_suspended(self, task: asyncio.Task[Any], found: str) -> None:
        if self.fault is None and self._ended is not None:
            asked = self._ended.asked_by.get(task) or [ask.step_id for ask in self._ended.asks]
            self.cursor.fail(SuspensionError(asked, found))


def current_call() -> Call[Any]:
    """Return the call whose strand is running; raise ``ContextUseError`` outside of a call's tasks."""
    # Only schedulers own strands, and only calls own schedulers.
    return cast("Call[Any]", cast("Scheduler", current_strand().owner).owner)

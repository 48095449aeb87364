"""The scheduler: runs the strands of one call, and cancels them when the round is over.

A suspension raises no error in the author's code: an ask waits for a future, and the end of the
round (``quiescence.py``) cancels all strands.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Collection, Coroutine, Generator, Iterable
from contextlib import contextmanager, suppress
from contextvars import Context
from inspect import iscoroutine
from threading import get_ident
from types import CoroutineType
from typing import Any, NoReturn, Protocol, TypeVar, cast
from weakref import WeakKeyDictionary

from anabranch._engine.quiescence import Quiescence, RoundOwner
from anabranch._engine.strands import OWN_TASKS, Scope, Strand, current_strand, forget, register
from anabranch.errors import ContextUseError

T = TypeVar("T")

CANCEL_TIMEOUT = 5.0
"""Seconds in which a body's ``finally`` blocks must end when the round is over."""

REFUSALS = 100
"""Cancellations of strands after the end of a run, until the scheduler leaves them parked."""


class Owner(RoundOwner, Protocol):
    """The call whose strands are scheduled."""

    @property
    def fault(self) -> Exception | None:
        """The error that ends the call even if the body catches it."""
        ...

    def on_strand_ended(self, strand: Strand) -> None:
        """Record that ``strand`` has ended."""
        ...

    def on_not_suspended(self, task: asyncio.Task[Any], found: str) -> None:
        """Fail the call: a strand continued after its suspension; ``found`` says how."""
        ...


class Scheduler:
    """Runs the strands of one call.

    Attributes:
        changed: set when the owner must check the state of the run.
        closing: whether the run is over, so that no new operation may start.
        suspending: whether the run is over because all strands wait.
        failure: error that aborted the run: nothing can be written any more.
        replaying: whether only recorded operations run; a new one waits for ever, in ``stalled``.
        parked: futures for which strands wait until the round is over, such as those of open asks.
    """

    def __init__(self, owner: Owner, call_id: str) -> None:
        self.strands: dict[asyncio.Task[Any], Strand] = {}
        self.in_effect: set[asyncio.Task[Any]] = set()
        self.context: Context = Context()
        self.changed: asyncio.Event = asyncio.Event()
        self.closing: bool = False
        self.suspending: bool = False
        self.replaying: bool = False
        self.stalled: list[str] = []
        self.parked: set[asyncio.Future[None]] = set()
        self.failure: Exception | None = None
        self.owner: Owner = owner
        self._call_id = call_id
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._watch: Quiescence | None = None
        self._suspended: tuple[asyncio.Task[Any], ...] = ()
        self._refused = 0
        self._made: list[Coroutine[Any, Any, Any]] = []
        self._refusals: WeakKeyDictionary[Coroutine[Any, Any, Any], Exception] | None = None
        self._prune_at = 64

    # -- running -----------------------------------------------------------------------------

    def start(
        self,
        coroutine: Coroutine[Any, Any, T],
        scope: Scope,
        *,
        watch: bool,
        patience: float | None = None,
    ) -> asyncio.Task[T]:
        """Start the first strand; with ``watch``, end the round when the result needs answers."""
        self._loop, self._thread = asyncio.get_running_loop(), get_ident()
        if watch:
            self._watch = Quiescence(self.strands, self.parked, self.owner, patience)
        task: asyncio.Task[T] = asyncio.Task(coroutine, loop=self._loop)
        register(Strand(self, task, scope))
        return task

    def strand(self) -> Strand:
        """Return the running strand, which must be one of this run."""
        # The usual case first: unlike current_strand() this makes no system call (for the process
        # id, with which asyncio finds the running loop in Python 3.11).
        if get_ident() == self._thread:
            task = asyncio.current_task(self._loop)
            if task is not None and (strand := self.strands.get(task)) and not strand.effects:
                return strand
        strand = current_strand()
        # Its steps would be named, and recorded, in the wrong call:
        # test_a_scope_belongs_to_the_strand_of_its_own_call.
        if strand.owner is not self:
            place = f"in another call than its own, {self._call_id!r}"
            remedy = "Use the ctx that your function received; keep none for a later call."
            raise ContextUseError("ctx", OWN_TASKS, place, remedy)
        return strand

    def scope(self) -> Scope:
        return self.strand().scope

    def made(
        self, operation: Coroutine[Any, Any, T], refusal: Exception | None = None
    ) -> Coroutine[Any, Any, T]:
        """Return ``operation``; remember it, in case the round ends before the body awaits it."""
        if refusal is not None:
            if self._refusals is None:  # hardly any call needs it
                self._refusals = WeakKeyDictionary()
            self._refusals[operation] = refusal
        if self._watch is not None:
            self._made.append(operation)
            if len(self._made) >= self._prune_at:
                self._made = _unstarted(self._made)
                self._prune_at = 2 * len(self._made) + 64
        return operation

    def refusal_of(self, operations: Iterable[Awaitable[Any]]) -> Exception | None:
        """Return the first error with which a member of ``operations`` is known to end."""
        if self._refusals is None:
            return None
        known = (self._refusals.get(each) for each in operations if iscoroutine(each))
        return next((refusal for refusal in known if refusal is not None), None)

    @property
    def has_rounds(self) -> bool:
        """Whether the run ends when all strands wait, and another round continues the call."""
        return self._watch is not None

    def stir(self) -> None:
        if self._watch is not None:
            self._watch.stir()

    def park(self, future: asyncio.Future[None]) -> None:
        """Report that a strand is about to wait for ``future``, which no strand completes."""
        self.parked.add(future)
        if self._watch is not None:
            self._watch.stir()
        else:
            self.changed.set()

    def strand_ended(self, strand: Strand) -> None:
        self.owner.on_strand_ended(strand)
        if not self.strands:
            self.changed.set()
        self.stir()

    @contextmanager
    def effect(self, strand: Strand) -> Generator[None]:
        """Mark ``strand`` as busy in the block: the round continues whatever the strand waits for."""
        strand.effects += 1
        self.in_effect.add(strand.task)
        try:
            yield
        finally:
            self.in_effect.discard(strand.task)
            strand.effects -= 1
            self.stir()
            if self.closing:
                self.changed.set()

    # -- permission for operations -----------------------------------------------------------

    async def go_live(self, scope: Scope, step_id: str) -> Strand:
        """Return the running strand if it may start a new operation; otherwise, end the strand."""
        strand = current_strand()
        if (fault := self.owner.fault) is not None:
            await self.raise_fault(step_id, fault)
        if self.closing:
            await self.refuse(step_id)
        if self.replaying:
            await self._stall(step_id)
        await scope.branch.check_deadlines()
        return strand

    async def may_begin(self) -> None:
        """Wait before a new effect while the round only waits for the end of running effects."""
        if self._watch is not None:
            await self._watch.may_begin()

    async def _stall(self, step_id: str) -> None:
        """Wait for ever, as if for an answer, because a replay starts no new operation."""
        self.stalled.append(step_id)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.park(future)
        await future

    async def refuse(self, step_id: str) -> NoReturn:
        """Cancel the running strand again; after ``REFUSALS`` times, let it wait for ever.

        A step in a ``finally`` block belongs to a later round. But a suspended strand that handles
        no exception any more has swallowed its cancellation.
        """
        task = current_strand().task
        # A step in a ``finally`` block would be reported as a swallowed cancellation:
        # test_a_step_in_a_finally_block_happens_when_the_body_really_ends.
        if task in self._suspended and sys.exception() is None:
            self.owner.on_not_suspended(task, f"it went on to {step_id!r}")
        self._refused += 1
        # A body that asks in an endless loop would keep the loop busy:
        # test_a_body_that_asks_again_for_ever_is_parked_for_ever.
        if self._refused > REFUSALS:
            await asyncio.get_running_loop().create_future()
        await asyncio.sleep(0)
        raise asyncio.CancelledError

    async def raise_fault(self, step_id: str, fault: Exception) -> NoReturn:
        """Yield to the loop, then raise ``fault``: a body may catch it, and try again for ever."""
        if self.closing:
            await self.refuse(step_id)
        await asyncio.sleep(0)
        raise fault

    # -- ending ------------------------------------------------------------------------------

    def suspend(self) -> None:
        """End the round in this pass of the loop, before any strand can run."""
        self._suspended = tuple(task for task in self.strands if not task.done())
        self.suspending = True
        self.cancel_strands()
        self.changed.set()

    def abort(self, error: Exception) -> None:
        """End the run here, as a crash would; run no undo, because nothing can be written."""
        self.failure = self.failure or error
        self.cancel_strands()
        self.changed.set()

    def stop_watching(self) -> None:
        """Stop the search for the round's end: the round ends in another way."""
        if self._watch is not None:
            self._watch.stop()

    def cancel_strands(self) -> None:
        """Cancel all strands; from now on no new operation starts."""
        self._close()
        for task in self.strands:
            task.cancel()

    def _close(self) -> None:
        self.closing = True
        self.stop_watching()
        if all(task.done() for task in self.strands):
            return
        # The body would have come to these operations later; they were not forgotten.
        for operation in _unstarted(self._made):
            operation.close()
        self._made.clear()

    async def cancel_and_wait(self) -> None:
        """Cancel the strands that still run, and wait for their ``finally`` blocks."""
        if not self.suspending:
            self.cancel_strands()
        self.forget_ended()
        if not self.strands:  # nearly always: a strand that waited for an answer ends immediately
            return
        now = asyncio.get_running_loop().time
        until = now() + CANCEL_TIMEOUT
        while self.strands:
            left = until - now()
            if left <= 0:
                self._refused = REFUSALS  # from now on each of their asks waits for ever
                self.cancel_strands()
                break
            self.changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self.changed.wait()

    async def finish_effects(self) -> None:
        """Wait until running effects have ended and are recorded; cancel all other strands."""
        self._close()
        while self.strands:
            # A cancelled effect would be half complete, and run again:
            # test_effects_are_finished_and_other_work_is_cancelled.
            for task in self.strands.keys() - self.in_effect:
                task.cancel()
            if not self.in_effect:
                return
            self.changed.clear()
            await self.changed.wait()

    def forget_ended(self) -> None:
        """Unregister the strands that have ended and that the loop has not reported yet."""
        for task in [task for task in self.strands if task.done()]:
            forget(task)

    def check_suspended(self, waiting: Collection[asyncio.Task[Any]]) -> None:
        """Report each strand that still runs, or is in ``waiting`` and not cancelled."""
        for task in self._suspended:
            if not task.done():
                found = f"task {task.get_name()!r} still runs {CANCEL_TIMEOUT:g} s later"
            elif task.cancelled() or task not in waiting:
                continue
            elif (error := task.exception()) is not None:
                found = f"it raised {type(error).__name__} instead"
            else:
                found = "it went on and returned a value"
            self.owner.on_not_suspended(task, found)


def _unstarted(operations: list[Coroutine[Any, Any, Any]]) -> list[Coroutine[Any, Any, Any]]:
    """Return the operations not awaited yet: a quicker ``inspect.getcoroutinestate``."""
    made = cast("list[CoroutineType[Any, Any, Any]]", operations)
    return [
        one for one in made if not (one.cr_suspended or one.cr_running) and one.cr_frame is not None
    ]

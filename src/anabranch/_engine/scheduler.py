"""The scheduler: it runs the strands of one call, and ends them when the round is over.

To suspend, nothing is raised in the author's code: an ask waits for a future, and when the round is
over (``quiescence.py``), all strands are cancelled. What strands do is unknown here; the call is known as
an :class:`Owner`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Collection, Coroutine, Iterable, Iterator
from contextlib import suppress
from contextvars import Context
from inspect import iscoroutine
from threading import get_ident
from types import CoroutineType
from typing import Any, NoReturn, Protocol, TypeVar, cast
from weakref import WeakKeyDictionary

from anabranch._engine.quiescence import Quiescence, RoundOwner
from anabranch._engine.scope import Scope
from anabranch._engine.strands import (
    Strand,
    current_strand,
    forget,
    start_root,
)
from anabranch.errors import NonDeterminismError

T = TypeVar("T")

CANCEL_TIMEOUT = 5.0
"""Seconds that a body's ``finally`` blocks have to end when its round is over."""

REFUSALS = 100
"""How often a run that is over cancels strands again before it leaves them parked."""


class Owner(RoundOwner, Protocol):
    """The call whose strands are scheduled."""

    @property
    def fault(self) -> Exception | None:
        """What ends the call whatever its body does."""
        ...

    def parked(self) -> Iterable[asyncio.Future[None]]:
        """Return the futures of open asks, which are not completed in this round."""
        ...

    def on_strand_ended(self, strand: Strand) -> None:
        """Take note that ``strand`` has ended."""
        ...

    def on_not_suspended(self, task: asyncio.Task[Any], found: str) -> None:
        """Take note that a strand went on after it was suspended; ``found`` says how."""
        ...


class Scheduler:
    """Runs the strands of one call.

    Attributes:
        strands: the tasks of the run; ``in_effect`` those that are inside of an effect.
        changed: set when the owner should look at what has become of the run.
        closing: the run is over; nothing new may happen.
        suspending: it is over because all strands wait.
        failure: what the run was aborted with: nothing can be written any more.
        replaying: only what is recorded is run: what is new waits for ever.
        stalled: the ids of the steps that wait for this reason.
    """

    def __init__(self, owner: Owner, call_id: str) -> None:
        self.strands: dict[asyncio.Task[Any], Strand] = {}
        self.in_effect: set[asyncio.Task[Any]] = set()
        self.context: Context = Context()
        self.changed: asyncio.Event = asyncio.Event()
        self.closing: bool = False
        self.suspending: bool = False
        self.replaying: bool = False
        self.stalled: dict[str, asyncio.Future[None]] = {}
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
        """Start the first strand; with ``watch``, the round ends as ``quiescence.py`` says."""
        self._loop, self._thread = asyncio.get_running_loop(), get_ident()
        if watch:
            self._watch = Quiescence(self.strands, self._futures, self.owner, patience)
        return start_root(self, coroutine, scope)

    def strand(self) -> Strand:
        """Return the running strand, which must be one of this run.

        Raises:
            NonDeterminismError: no strand is running, or another call's.
        """
        # The usual case first: unlike current_strand() this makes no system call (for the process
        # id, with which asyncio finds the running loop in Python 3.11).
        if get_ident() == self._thread:
            task = asyncio.current_task(self._loop)
            if task is not None and (strand := self.strands.get(task)) and not strand.effects:
                return strand
        strand = current_strand()
        if strand.owner is not self:
            expected = f"use in call {self._call_id!r}"
            raise NonDeterminismError("ctx", expected, "use in another call")
        return strand

    def scope(self) -> Scope:
        """Return where the running strand is; raises as :meth:`strand`."""
        return self.strand().scope

    def made(
        self, operation: Coroutine[Any, Any, T], refusal: Exception | None = None
    ) -> Coroutine[Any, Any, T]:
        """Return ``operation``; remember it, in case the round ends before the body awaits it.

        ``refusal`` is the error with which it will end, if that is known already.
        """
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
        """Return the first error with which one of ``operations`` is known to end."""
        if self._refusals is None:
            return None
        known = (self._refusals.get(each) for each in operations if iscoroutine(each))
        return next((refusal for refusal in known if refusal is not None), None)

    @property
    def has_rounds(self) -> bool:
        """Whether the run ends when nothing goes on in it, and is continued later."""
        return self._watch is not None

    def stir(self) -> None:
        """Take note that a strand's state may have changed."""
        if self._watch is not None:
            self._watch.stir()

    def strand_parked(self) -> None:
        """Take note that a strand has begun to wait for an answer."""
        if self._watch is not None:
            self._watch.stir()
        else:
            self.changed.set()

    def _futures(self) -> Iterator[asyncio.Future[None]]:
        yield from self.owner.parked()
        yield from self.stalled.values()

    def strand_ended(self, strand: Strand) -> None:
        """Report to the owner that ``strand`` has ended."""
        self.owner.on_strand_ended(strand)
        if not self.strands:
            self.changed.set()
        self.stir()

    def begin_effect(self, strand: Strand) -> None:
        """Take note that ``strand`` is busy, whatever it waits for."""
        strand.effects += 1
        self.in_effect.add(strand.task)

    def end_effect(self, strand: Strand) -> None:
        """Take note that it no longer is."""
        self.in_effect.discard(strand.task)
        strand.effects -= 1
        self.stir()
        if self.closing:
            self.changed.set()

    # -- what may happen ---------------------------------------------------------------------

    async def go_live(self, scope: Scope, step_id: str) -> Strand:
        """Return the running strand if something new may happen in it; end it otherwise.

        Raises:
            NonDeterminismError: no strand is running; or the replay has failed before.
            BranchTimeoutError: the deadline of a branch around it has passed.
            asyncio.CancelledError: so it has, or the round has ended.
        """
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
        """Wait before a new effect, if the round only waits for the end of others."""
        if self._watch is not None:
            await self._watch.may_begin()

    async def _stall(self, step_id: str) -> None:
        """Wait as if for an answer that does not come."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.stalled[step_id] = future
        self.stir()
        await future

    async def refuse(self, step_id: str) -> NoReturn:
        """Cancel the strand again. One that swallows this for ever is left parked for ever.

        A step in a ``finally`` block belongs to a later round. But a strand that was suspended
        and handles no exception any more has swallowed its cancellation.

        Raises:
            asyncio.CancelledError: always.
        """
        task = current_strand().task
        if task in self._suspended and sys.exception() is None:
            self.owner.on_not_suspended(task, f"it went on to {step_id!r}")
        self._refused += 1
        if self._refused > REFUSALS:
            await asyncio.get_running_loop().create_future()
        await asyncio.sleep(0)
        raise asyncio.CancelledError

    async def raise_fault(self, step_id: str, fault: Exception) -> NoReturn:
        """Raise ``fault``; but yield first: a body may catch it, and try for ever."""
        if self.closing:
            await self.refuse(step_id)
        await asyncio.sleep(0)
        raise fault

    # -- ending ------------------------------------------------------------------------------

    def suspend(self) -> None:
        """End the round, here and now: no strand may do anything more in between."""
        self._suspended = tuple(task for task in self.strands if not task.done())
        self.suspending = True
        self.cancel_strands()
        self.changed.set()

    def abort(self, error: Exception) -> None:
        """End the run here, as a crash would: nothing is undone, for nothing could be written."""
        self.failure = self.failure or error
        self.cancel_strands()
        self.changed.set()

    def stop_watching(self) -> None:
        """The round will not end because all is quiet: it ends in another way."""
        if self._watch is not None:
            self._watch.stop()

    def cancel_strands(self) -> None:
        """Cancel all strands; from now on nothing new happens."""
        self._close()
        for task in self.strands:
            task.cancel()

    def _close(self) -> None:
        """From now on nothing new happens."""
        self.closing = True
        self.stop_watching()
        if all(task.done() for task in self.strands):
            return
        # The body would have come to these operations later; they were not forgotten.
        for operation in _unstarted(self._made):
            operation.close()
        self._made.clear()

    async def cancel_and_wait(self) -> None:
        """Cancel what still runs, and wait for its ``finally`` blocks; nothing new happens."""
        if not self.suspending:
            self.cancel_strands()
        self.forget_ended()
        if not self.strands:  # nearly always: a strand that waited for an answer ends at once
            return
        now = asyncio.get_running_loop().time
        until = now() + CANCEL_TIMEOUT
        while self.strands:
            left = until - now()
            if left <= 0:
                self._refused = REFUSALS  # from now on whatever they ask waits for ever
                self.cancel_strands()
                break
            self.changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self.changed.wait()

    async def finish_effects(self) -> None:
        """Cancel all strands but those in effects, which are awaited and recorded.

        Else they would be half done, and done again.
        """
        self._close()
        while self.strands:
            for task in self.strands.keys() - self.in_effect:
                task.cancel()
            if not self.in_effect:
                return
            self.changed.clear()
            await self.changed.wait()

    def forget_ended(self) -> None:
        """Take note of the strands that have ended and that the loop has not reported yet."""
        for task in [task for task in self.strands if task.done()]:
            forget(task)

    def check_suspended(self, waiting: Collection[asyncio.Task[Any]]) -> None:
        """Report each strand that was suspended and still runs.

        Those in ``waiting`` must have ended by their cancellation; any other may end as it likes.
        """
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
    """Return those that were not awaited yet (``inspect.getcoroutinestate``, but quicker)."""
    made = cast("list[CoroutineType[Any, Any, Any]]", operations)
    return [
        one for one in made if not (one.cr_suspended or one.cr_running) and one.cr_frame is not None
    ]

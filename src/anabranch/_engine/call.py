"""The call: it runs a body over a journal until the body has ended or waits for answers.

Owns the life of one run: starting it, ending rounds, and paying undos when the call fails. What the
body may do meanwhile is in ``operations.py``. Any edge drives it, in one of two ways:

    outcome = await call.round()        a cold edge: one round, to be continued from the journal
    async for ask in call.asks(): ...   a hot edge: the body stays alive while answers come in

To suspend, nothing is raised in the author's code: an ask waits for a future, and when every
strand waits (``quiescence.py``) the body is cancelled and thrown away.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NoReturn, TypeVar

from anabranch._engine.branch import Branch
from anabranch._engine.clock import Clock, SystemClock
from anabranch._engine.combine import let_go, to_the_end
from anabranch._engine.journal import Answer, Ask, Journal, Notice
from anabranch._engine.operations import REFUSALS, Operations, Quiet, Sink, unstarted
from anabranch._engine.quiescence import Quiescence, check_support
from anabranch._engine.recorder import Recorder
from anabranch._engine.strands import Strand, adopt, forget, install_task_factory
from anabranch.errors import error_to_json
from anabranch.limits import Limits

__all__ = ["Call", "Finished", "Waiting"]

T = TypeVar("T")
logger: logging.Logger = logging.getLogger("anabranch.engine")

LETTING_GO = 5.0
"""Seconds that a body's ``finally`` blocks have to end when its round is over."""


@dataclass(frozen=True, slots=True)
class Finished(Generic[T]):
    """The body has returned ``value``."""

    value: T


@dataclass(frozen=True, slots=True)
class Waiting:
    """Every strand is blocked; all open asks are here, in the order in which they were asked."""

    asks: tuple[Ask, ...]


async def _deliver_nowhere(notice: Notice) -> None:
    logger.debug("notice without a reader: %s", notice)


class Call(Operations, Generic[T]):
    """One run of ``body`` over ``journal``. Use as an async context manager, on one loop.

    Leaving the context cancels a body that still runs and pays the undos it owes: all of them
    for a hot run, those of this round for a cold one (whose earlier rounds may be continued),
    none for a cold one that is recorded (for that round itself may be taken up again): there,
    effects that have begun are awaited and recorded first.

    Args:
        body: called once with the root branch.
        journal: what has happened before; it is extended in place.
        name: path of the root branch, the tool's name.
        limits: enclose the whole call; a timeout counts from ``journal.started``.
        clock: time; the system's by default.
        sink: receives log lines and progress, each once over all rounds.
        recorder: has what happens written down before the body sees it.
    """

    def __init__(
        self,
        body: Callable[[Branch], Coroutine[Any, Any, T]],
        journal: Journal,
        *,
        name: str,
        limits: Limits | None = None,
        clock: Clock | None = None,
        sink: Sink = _deliver_nowhere,
        recorder: Recorder | None = None,
    ) -> None:
        super().__init__(journal, name, clock=clock or SystemClock(), sink=sink, recorder=recorder)
        self.ledger: dict[str, int] = journal.spent()
        self.ledger[name] = sum(entry.tokens or 0 for entry in journal.entries.values())
        self.root: Branch = Branch(self, None, name, limits or Limits())
        self._body = body
        self._task: asyncio.Task[T] | None = None
        self._settled = False
        self.context: Context = Context()

    # -- driving -----------------------------------------------------------------------------

    async def __aenter__(self) -> Call[T]:
        await check_support()
        install_task_factory()
        if self.root.timeout is not None:
            self.journal.deadlines.setdefault(
                self.root.path, self.journal.started + self.root.timeout
            )
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._task is not None and not self._settled:
            if self._task.done() and not self._task.cancelled():
                self._task.exception()  # looked at: whoever leaves does not ask for it any more
            await to_the_end(self._abandon())

    async def _abandon(self) -> None:
        recorded = self.records.recorder is not None
        if recorded and self._cold:  # somebody will take this round up again
            await self._finish_effects()
            await self._let_go()
            return
        await self._let_go()
        if self.broken_off:
            return
        try:
            await self.records.failing(None)
            self._repay = partial(self._pay, this_round_only=self._cold)
            await self._repay()
        except Exception:  # the recorder's; whoever leaves has a reason of their own to tell
            logger.exception("call %r was left, and could not be undone yet", self.journal.line)

    async def _finish_effects(self) -> None:
        """Let effects come to their end and be recorded, lest they be half done and done again."""
        self.closing = True
        self.stop_watching()
        while self.strands:
            for task in self.strands.keys() - self.in_effect:
                task.cancel()
            if not self.in_effect:
                return
            self._changed.clear()
            await self._changed.wait()

    async def _pay(self, *, this_round_only: bool = False) -> list[BaseException]:
        return await self.undos.pay(self.clock, self.records, this_round_only=this_round_only)

    def _start(self, *, cold: bool) -> asyncio.Task[T]:
        if self._task is not None:
            raise RuntimeError("A Call runs once: build another one for the next round.")
        self._cold = cold
        if cold:
            self._watch = Quiescence(self.strands, self.parked, self._on_quiet)
        self._task = adopt(self, self._run(), self.root)
        return self._task

    async def _run(self) -> T:
        try:
            return await self.root.run(self._body)
        finally:
            self._changed.set()  # one pass of the loop sooner than the task can tell of its end

    async def round(self) -> Finished[T] | Waiting:
        """Run until the body has ended or every strand waits for an answer.

        Returns:
            ``Finished``, or ``Waiting`` with every open ask; then ``journal`` holds all that the
            next round needs, and this object is spent.

        Raises:
            Exception: what the body raised, after its undos have been paid.
            NonDeterminismError: the replay took another way than the recorded run.
            SuspensionError: the body went on after it had been cancelled at the round's end.
            Exception: what the recorder raised; then no undo has been paid.
        """
        task = self._start(cold=True)
        await self._changed.wait()
        if self._broken is not None:
            await self._let_go()
            raise self._broken
        if self._quiet is None:
            return Finished(await self._conclude(task))
        await self._let_go()
        self._check_suspended(self._quiet)
        if self._quiet.certain:
            self.check_all_reached(None)
        if self.fault is not None:
            await self._fail(self.fault)
        self._settled = True
        self.journal.rounds += 1
        return Waiting(self._quiet.asks)

    async def unwind(self, error: BaseException) -> NoReturn:
        """End the call with ``error``: do nothing new, pay every undo that the journal knows.

        The body is run over what is recorded, so that its undos are bound to their steps; what it
        would do beyond that waits for ever, and is then let go.

        Raises:
            BaseException: ``error``, with a note for each undo that has failed.
        """
        self.unwinding = True
        self._start(cold=True)
        await self._changed.wait()
        await self._let_go()
        await self._fail(error)

    async def asks(self) -> AsyncIterator[Ask]:
        """Yield each ask as it is made, while the body runs; ends when the body does.

        Answer with :meth:`answer`, in any order, while iterating. Afterwards :meth:`result` has
        the outcome.
        """
        task = self._start(cold=False)
        while True:
            while self.open.unseen:
                ask = self.open.unseen.popleft()
                if self.is_open(ask.step_id):
                    yield ask
            if task.done() or self._broken is not None:
                return
            self._changed.clear()
            await self._changed.wait()

    def answer(self, step_id: str, answer: Answer) -> bool:
        """Answer an open ask of a hot run; false if it is not open (any more)."""
        if not self.open.answer(step_id, answer):
            return False
        self.records.add(step_id, self.journal.entries[step_id])
        return True

    def is_open(self, step_id: str) -> bool:
        """Whether somebody still waits for the answer to ``step_id``."""
        return self.open.is_open(step_id)

    async def result(self) -> T:
        """Return what the body of a hot run returned, once :meth:`asks` has ended.

        Raises:
            Exception: as :meth:`round`.
            RuntimeError: it has not ended.
        """
        if self._broken is not None:
            raise self._broken
        if self._task is None or not self._task.done():
            raise RuntimeError("A call has no result before asks() has come to its end.")
        return await self._conclude(self._task)

    async def drive(self, answerer: Callable[[Ask], Awaitable[Answer]]) -> T:
        """Run hot to the end: ``answerer`` is called for each ask, concurrently.

        Its task is cancelled when the ask is withdrawn (a lost race, a timeout).

        Raises:
            Exception: as :meth:`round`; or what ``answerer`` raised, which ends the call.
        """

        async def answer_one(ask: Ask) -> None:
            try:
                self.answer(ask.step_id, await answerer(ask))
            except Exception as error:  # noqa: BLE001 - raised again by drive(), when all is let go
                self._broken = self._broken or error
                self._changed.set()

        try:
            async for ask in self.asks():
                self._answering[ask.step_id] = asyncio.ensure_future(answer_one(ask))
        finally:
            await let_go(list(self._answering.values()))
        return await self.result()

    # -- ending ------------------------------------------------------------------------------

    async def _conclude(self, task: asyncio.Task[T]) -> T:
        """Turn the ended root task into its value or its error."""
        self._forget_ended()
        # What the body has left running, it has left: nobody will ask what became of it.
        self.cancelled.update(strand.path for strand in self.strands.values())
        await self._let_go()
        error: BaseException | None
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        self.check_all_reached(error)
        if self.fault is not None and error is not self.fault:
            self.fault.__cause__ = self.fault.__cause__ or error
            error = self.fault
        if error is not None:
            await self._fail(error)
        self._settled = True
        return task.result()

    async def _fail(self, error: BaseException) -> NoReturn:
        self._settled = True
        for problem in await to_the_end(self._undo_all(error)):
            error.add_note(f"An undo failed as well: {problem!r}")
        raise error

    async def _undo_all(self, error: BaseException) -> list[BaseException]:
        await self.records.failing(error_to_json(error))
        self._repay = self._pay
        return await self._repay()

    def _on_quiet(self, certain: bool) -> None:  # noqa: FBT001 - the signature of a callback
        """End the round, here and now: no strand may do anything more in between."""
        asked_by: dict[asyncio.Task[Any], list[str]] = {task: [] for task in self.strands}
        self._quiet = Quiet(self.open.asks(), asked_by | self.open.by_task(), certain)
        self._close_unstarted()
        self.suspending = True
        self.stop_strands()
        self._changed.set()

    async def _let_go(self) -> None:
        """Cancel what still runs, wait for its ``finally`` blocks, let nothing new happen."""
        if not self.suspending:
            self.stop_strands()
        self._forget_ended()
        if not self.strands:  # nearly always: a strand that waited for an answer ends at once
            return
        deadline = asyncio.get_running_loop().time() + LETTING_GO
        while self.strands:
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                self._refused = REFUSALS  # from now on whatever they ask waits for ever
                self.stop_strands()
                break
            await asyncio.wait(list(self.strands), timeout=left)

    def _forget_ended(self) -> None:
        """Take note of the strands that have ended, of which the loop has not told yet."""
        for task in [task for task in self.strands if task.done()]:
            forget(task)

    def _check_suspended(self, quiet: Quiet) -> None:
        for task, own in quiet.asked_by.items():
            if not task.done():
                found = f"task {task.get_name()!r} still runs {LETTING_GO:g} s later"
            elif task.cancelled():
                continue
            elif (error := task.exception()) is not None:
                found = f"it raised {type(error).__name__} instead"
            else:
                found = "it went on and returned a value"
            self._not_suspended(own, found)

    def _close_unstarted(self) -> None:
        """The body would have come to these operations later; they were not forgotten."""
        for operation in unstarted(self._made):
            operation.close()
        self._made.clear()

    # -- what strands report -----------------------------------------------------------------

    def strand_ended(self, strand: Strand) -> None:
        """Called by ``strands.py`` when a task of this call is done."""
        if strand.task is self._task:
            self.stop_watching()
            self._changed.set()
        elif strand.task.cancelled():
            if not self.suspending:
                self.cancelled.add(strand.path)
        elif self.closing:
            strand.task.exception()  # looked at: the call's own outcome says what happened
        self.stir()

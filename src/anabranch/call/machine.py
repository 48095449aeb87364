"""The call: it runs a body over a journal until the body has ended or waits for answers.

Owns the life of one run: looking recorded steps up, parking asks, ending rounds, noticing that a
replay has taken another way, and paying undos when the call fails. Any edge drives it, in one of
two ways:

    outcome = await call.round()        a cold edge: one round, to be continued from the journal
    async for ask in call.asks(): ...   a hot edge: the body stays alive while answers come in

To suspend, nothing is raised in the author's code: an ask waits for a future, and when every
strand waits (``quiescence.py``) the body is cancelled and thrown away.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import uuid
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from types import CoroutineType
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar, cast

from anabranch.call.branch import Branch
from anabranch.call.codec import codec_of
from anabranch.call.combine import first_of, let_go, only, to_the_end
from anabranch.call.course import Course
from anabranch.call.effects import Effect, Interrupted, Undos, perform, require_references
from anabranch.call.journal import Answer, Ask, AskKind, Entry, Journal, Notice
from anabranch.call.quiescence import Quiescence, check_support
from anabranch.call.strands import (
    Scope,
    Strand,
    adopt,
    current_strand,
    forget,
    install_task_factory,
)
from anabranch.errors import (
    AnabranchError,
    SerializationError,
    SuspensionError,
    error_from_json,
    error_to_json,
)
from anabranch.limits import Limits
from anabranch.ports import Clock, SystemClock

__all__ = ["Call", "Finished", "Sink", "Waiting"]

T = TypeVar("T")
T_op = TypeVar("T_op")
Sink = Callable[[Notice], Awaitable[None]]
logger: logging.Logger = logging.getLogger("anabranch.call")

LETTING_GO = 5.0
"""Seconds that a body's ``finally`` blocks have to end when its round is over."""

_REFUSALS = 100


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


class _Open(NamedTuple):
    """An ask that waits: for ``future``, in ``task``."""

    ask: Ask
    future: asyncio.Future[None]
    task: asyncio.Task[Any]


class _Quiet(NamedTuple):
    """How a round has ended: the open asks, who asked what, and whether nobody could go on."""

    asks: tuple[Ask, ...]
    asked_by: dict[asyncio.Task[Any], list[str]]
    certain: bool


class Call(Course, Generic[T]):
    """One run of ``body`` over ``journal``. Use as an async context manager, on one loop.

    Leaving the context cancels a body that still runs and pays the undos it owes: all of them
    for a hot run, those of this round for a cold one (whose earlier rounds may be continued).

    Args:
        body: called once with the root branch.
        journal: what has happened before; it is extended in place.
        name: path of the root branch, the tool's name.
        limits: enclose the whole call; a timeout counts from ``journal.started``.
        clock: time; the system's by default.
        sink: receives log lines and progress, each once over all rounds.
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
    ) -> None:
        super().__init__(journal, name)
        self.clock: Clock = clock or SystemClock()
        self.strands: dict[asyncio.Task[Any], Strand] = {}
        self.ledger: dict[str, int] = journal.spent()
        self.ledger[name] = sum(entry.tokens or 0 for entry in journal.entries.values())
        self.undos: Undos = Undos(journal)
        self.closing: bool = False
        self.suspending: bool = False
        self.root: Branch = Branch(self, None, name, limits or Limits())
        self._body = body
        self._sink = sink
        self._open: dict[str, _Open] = {}
        self._unseen: deque[Ask] = deque()
        self._task: asyncio.Task[T] | None = None
        self._watch: Quiescence | None = None
        self._changed: asyncio.Event = asyncio.Event()
        self._answering: dict[str, asyncio.Task[None]] = {}
        self._broken: BaseException | None = None
        self._cold = False
        self._refused = 0
        self._quiet: _Quiet | None = None
        self._settled = False
        self._repay: Callable[[], Coroutine[Any, Any, list[BaseException]]] | None = None
        self._made: list[Coroutine[Any, Any, Any]] = []
        self._sweep_at = 64
        self.context: Context = Context()

    # -- driving -----------------------------------------------------------------------------

    async def __aenter__(self) -> Call[T]:
        check_support()
        install_task_factory()
        if self.root.timeout is not None:
            self.journal.deadlines.setdefault(
                self.root.path, self.journal.started + self.root.timeout
            )
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._task is not None and not self._settled:
            await to_the_end(self._abandon())

    async def _abandon(self) -> None:
        await self._let_go()
        self._repay = partial(self.undos.pay, this_round_only=self._cold)
        await self._repay()

    def _start(self, *, cold: bool) -> asyncio.Task[T]:
        if self._task is not None:
            raise RuntimeError("A Call runs once: build another one for the next round.")
        self._cold = cold
        if cold:
            self._watch = Quiescence(
                self.strands,
                lambda: (opened.future for opened in self._open.values()),
                self._on_quiet,
            )
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
        """
        task = self._start(cold=True)
        await self._changed.wait()
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

    async def asks(self) -> AsyncIterator[Ask]:
        """Yield each ask as it is made, while the body runs; ends when the body does.

        Answer with :meth:`answer`, in any order, while iterating. Afterwards :meth:`result` has
        the outcome.
        """
        task = self._start(cold=False)
        while True:
            while self._unseen:
                ask = self._unseen.popleft()
                if self.is_open(ask.step_id):
                    yield ask
            if task.done() or self._broken is not None:
                return
            self._changed.clear()
            await self._changed.wait()

    def answer(self, step_id: str, answer: Answer) -> bool:
        """Answer an open ask of a hot run; false if it is not open (any more)."""
        if not self.is_open(step_id):
            return False
        self.journal.answer({step_id: answer})
        self._open[step_id].future.set_result(None)
        return True

    def is_open(self, step_id: str) -> bool:
        """Whether somebody still waits for the answer to ``step_id``."""
        opened = self._open.get(step_id)
        return opened is not None and not opened.future.done()

    async def result(self) -> T:
        """Return what the body of a hot run returned, once :meth:`asks` has ended.

        Raises:
            Exception: as :meth:`round`.
            RuntimeError: it has not ended.
        """
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
        if self._broken is not None:
            raise self._broken
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
        self._repay = self.undos.pay
        for problem in await to_the_end(self._repay()):
            error.add_note(f"An undo failed as well: {problem!r}")
        raise error

    def _on_quiet(self, certain: bool) -> None:  # noqa: FBT001 - the signature of a callback
        """End the round, here and now: no strand may do anything more in between."""
        asked_by: dict[asyncio.Task[Any], list[str]] = {task: [] for task in self.strands}
        for step_id, opened in self._open.items():
            asked_by[opened.task].append(step_id)
        asks = tuple(opened.ask for opened in self._open.values())
        self._quiet = _Quiet(asks, asked_by, certain)
        self._close_unstarted()
        self.suspending = True
        self._stop_strands()
        self._changed.set()

    def _stop_strands(self) -> None:
        self.closing = True
        if self._watch is not None:
            self._watch.stop()
        for task in self.strands:
            task.cancel()

    async def _let_go(self) -> None:
        """Cancel what still runs, wait for its ``finally`` blocks, let nothing new happen."""
        if not self.suspending:
            self._stop_strands()
        self._forget_ended()
        if not self.strands:  # nearly always: a strand that waited for an answer ends at once
            return
        deadline = asyncio.get_running_loop().time() + LETTING_GO
        while self.strands:
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                self._refused = _REFUSALS  # from now on whatever they ask waits for ever
                self._stop_strands()
                break
            await asyncio.wait(list(self.strands), timeout=left)

    def _forget_ended(self) -> None:
        """Take note of the strands that have ended, of which the loop has not told yet."""
        for task in [task for task in self.strands if task.done()]:
            forget(task)

    def _check_suspended(self, quiet: _Quiet) -> None:
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

    def _not_suspended(self, own: list[str], found: str) -> None:
        if self.fault is None and self._quiet is not None:
            self.fail_with(SuspensionError(own or [a.step_id for a in self._quiet.asks], found))

    def _close_unstarted(self) -> None:
        """The body would have come to these operations later; they were not forgotten."""
        for operation in _unstarted(self._made):
            operation.close()
        self._made.clear()

    # -- what strands report -----------------------------------------------------------------

    def stir(self) -> None:
        """A strand's state may have changed."""
        if self._watch is not None:
            self._watch.stir()

    def strand_ended(self, strand: Strand) -> None:
        """Called by ``strands.py`` when a task of this call is done."""
        if strand.task is self._task:
            if self._watch is not None:
                self._watch.stop()
            self._changed.set()
        elif strand.task.cancelled():
            if not self.suspending:
                self.cancelled.add(strand.path)
        elif self.closing:
            strand.task.exception()  # looked at: the call's own outcome says what happened
        self.stir()

    # -- what branches and contexts use ------------------------------------------------------

    def made(self, operation: Coroutine[Any, Any, T_op]) -> Coroutine[Any, Any, T_op]:
        """Return ``operation``; remember it, in case the round ends before the body awaits it."""
        if self._cold:
            self._made.append(operation)
            if len(self._made) >= self._sweep_at:
                self._made = _unstarted(self._made)
                self._sweep_at = 2 * len(self._made) + 64
        return operation

    def open_asks(self, *kinds: AskKind) -> list[str]:
        """Return the ids of the asks of these kinds that wait for an answer."""
        return [step_id for step_id, opened in self._open.items() if opened.ask.kind in kinds]

    async def go_live(self, scope: Scope, step_id: str) -> Strand:
        """Pass only if something new may happen here; otherwise this strand is to end.

        Raises:
            NonDeterminismError: no strand is running; or the replay has gone astray before.
            BranchTimeoutError: the deadline of a branch around it has passed.
            asyncio.CancelledError: so it has, or the round has ended.
        """
        strand = current_strand()
        if self.fault is not None:
            await self._go_astray(step_id, self.fault)
        if self.closing:
            await self.refuse(step_id)
        branch: Branch | None = scope.branch
        while branch is not None:
            if branch.expired:
                await branch.stop()
            branch = branch.parent
        return strand

    async def refuse(self, step_id: str) -> NoReturn:
        """Cancel the strand again. One that swallows this for ever is left parked for ever.

        A step in a ``finally`` block belongs to a later round. But a strand that was suspended
        and handles no exception any more has swallowed its cancellation.

        Raises:
            asyncio.CancelledError: always.
        """
        own = self._quiet.asked_by.get(current_strand().task) if self._quiet is not None else None
        if own is not None and sys.exception() is None:
            self._not_suspended(own, f"it went on to {step_id!r}")
        self._refused += 1
        if self._refused > _REFUSALS:
            await asyncio.get_running_loop().create_future()
        await asyncio.sleep(0)
        raise asyncio.CancelledError

    async def _go_astray(self, step_id: str, fault: Exception) -> NoReturn:
        """Raise ``fault``; but yield first: a body may catch whatever it gets, and try for ever."""
        if self.closing:
            await self.refuse(step_id)
        await asyncio.sleep(0)
        raise fault

    async def ask(
        self,
        scope: Scope,
        step_id: str,
        kind: AskKind,
        asked: str,
        make_request: Callable[[], Any],
        responder: Callable[[Any], Awaitable[Answer]] | None = None,
    ) -> Entry:
        """Return the answer's entry; waits for it if it is not recorded.

        ``make_request`` is called only if the question must really be asked; it may refuse, and
        then refuses for good.
        ``responder`` answers it here, on the server, as an effect; without one it goes out.

        Raises:
            StepFailed: the answer was an error.
            NonDeterminismError: something else was asked here before.
        """
        if self.fault is not None:
            await self._go_astray(step_id, self.fault)
        entry = self.recall(step_id, kind, asked)
        if entry is None:
            strand = await self.go_live(scope, step_id)
            try:
                ask = Ask(step_id, kind, make_request(), asked)
            except AnabranchError as refusal:
                # Why it is refused (what is spent, what is open) is another thing in a replay.
                self.record(step_id, Entry(kind, asked, error=error_to_json(refusal)), scope.branch)
                raise
            if responder is None:
                entry = await self._park(strand, ask)
            else:
                entry = await self._respond(strand, ask, responder)
        scope.branch.ids.append(step_id)
        if entry.error is not None:
            raise error_from_json(entry.error)
        return entry

    async def _respond(
        self, strand: Strand, ask: Ask, responder: Callable[[Any], Awaitable[Answer]]
    ) -> Entry:
        strand.effects += 1
        try:
            answer = await responder(ask.request)
        finally:
            strand.effects -= 1
            self.stir()
        entry = Entry(ask.kind, ask.fingerprint, answer.value, answer.error, tokens=None)
        self.journal.entries[ask.step_id] = entry
        return entry

    async def _park(self, strand: Strand, ask: Ask) -> Entry:
        opened = _Open(ask, asyncio.get_running_loop().create_future(), strand.task)
        self._open[ask.step_id] = opened
        self.journal.pending[ask.step_id] = (ask.kind, ask.fingerprint)
        if self._cold:
            self.stir()
        else:
            self._unseen.append(ask)
            self._changed.set()
        try:
            await opened.future
        finally:
            self._unpark(ask.step_id)
        return self.journal.entries[ask.step_id]

    def _unpark(self, step_id: str) -> None:
        del self._open[step_id]
        if (answering := self._answering.pop(step_id, None)) is not None:
            answering.cancel()  # nobody waits for this answer any more
        if not self.closing:  # answered, or withdrawn; not just interrupted by the round's end
            self.journal.pending.pop(step_id, None)
            self.stir()

    async def step(
        self,
        scope: Scope,
        step_id: str,
        asked: str,
        effect: Effect,
    ) -> Any:  # noqa: ANN401 - the type is the effect's
        """Run ``effect`` once per call and return its value, now and in every replay.

        ``asked`` pins what is done (:func:`step_fingerprint`).

        Raises:
            StepFailed: it raised (or the ``AnabranchError`` that it raised).
            SerializationError: its value cannot be recorded; the call fails.
        """
        if self.fault is not None:
            await self._go_astray(step_id, self.fault)
        entry = self.recall(step_id, "step", asked)
        if entry is not None:
            scope.branch.ids.append(step_id)
            if entry.error is not None:
                raise error_from_json(entry.error)
            if effect.undo is not None:
                self.undos.bind(step_id, effect, first=False)
        else:
            entry = await self._run_effect(scope, step_id, asked, effect)
        return codec_of(effect.function).decode(step_id, entry.value)

    async def _run_effect(self, scope: Scope, step_id: str, asked: str, effect: Effect) -> Entry:
        strand = await self.go_live(scope, step_id)
        if effect.undo is not None and strand.racing:
            require_references(step_id, effect)
        try:
            entry, cause = await perform(strand, step_id, asked, effect)
        except SerializationError as error:
            self.fail_with(error)
            raise
        self.record(step_id, entry, scope.branch)
        if entry.error is None:
            self.undos.bind(step_id, effect, first=True)
            if self._repay is not None:  # the call was over before a thread was
                await self._repay()
        if isinstance(cause, Interrupted):
            raise cause
        if entry.error is not None:
            raise error_from_json(entry.error) from cause
        return entry

    async def notify(self, scope: Scope, notice: Notice) -> None:
        """Deliver ``notice``, unless an earlier round did."""
        scope.check_order("notice")
        number = scope.count("!")
        if number == 1:
            scope.branch.noticed.append(scope.path)
        delivered = self.journal.delivered
        if self.closing or number <= delivered.get(scope.path, 0):
            return
        strand = await self.go_live(scope, scope.path)
        delivered[scope.path] = number
        self.journal.progressed += notice.level is None
        strand.effects += 1
        try:
            await self._sink(notice)
        finally:
            strand.effects -= 1
            self.stir()

    async def race(self, scope: Scope, step_id: str, operations: Sequence[Awaitable[T]]) -> T:
        """Return the value of the operation that ends first; replays go straight to it."""
        entry = self.recall(step_id, "race", "")
        if entry is not None:
            scope.branch.ids.append(step_id)
            return await only(operations, int(cast("int", entry.value)))
        strand = current_strand()
        was_racing, strand.racing = strand.racing, True
        try:
            winner, future = await first_of(operations)
        finally:
            strand.racing = was_racing
        if not self.closing:
            self.record(step_id, Entry("race", "", winner), scope.branch)
        return future.result()

    def now(self, scope: Scope) -> float:
        """Return the time of the first run, seconds since the epoch."""
        step_id = self.new_id(scope, "now")
        entry = self.recall(step_id, "now", "")
        if entry is not None:
            scope.branch.ids.append(step_id)
            return float(cast("float", entry.value))
        now = self.clock.now()
        if not self.closing:
            self.record(step_id, Entry("now", "", now), scope.branch)
        return now

    def unique(self, scope: Scope, name: str) -> uuid.UUID:
        """Return a UUID that only this place of this call has, the same in every replay."""
        scope.check_order(name)
        place = f"{self.journal.call_id}:{scope.path}/{name}.{scope.count(name)}"
        return uuid.UUID(bytes=blake2b(place.encode(), digest_size=16).digest(), version=4)


def _unstarted(operations: list[Coroutine[Any, Any, Any]]) -> list[Coroutine[Any, Any, Any]]:
    """Return those that nobody has awaited yet (``inspect.getcoroutinestate``, but quicker)."""
    made = cast("list[CoroutineType[Any, Any, Any]]", operations)
    return [
        one for one in made if not (one.cr_suspended or one.cr_running) and one.cr_frame is not None
    ]

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
import inspect
import logging
import uuid
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Generic, TypeVar

import anyio
from pydantic import JsonValue

from anabranch.call.branch import Branch
from anabranch.call.codec import codec_of, reference_to
from anabranch.call.combine import discard, first_of, let_go
from anabranch.call.effects import Effect, Undos, perform
from anabranch.call.journal import Answer, Ask, AskKind, Entry, Journal, Notice, fingerprint
from anabranch.call.quiescence import Quiescence, check_support
from anabranch.call.strands import Scope, Strand, adopt, install_task_factory
from anabranch.errors import (
    AnabranchError,
    NonDeterminismError,
    SerializationError,
    SuspensionError,
    error_from_json,
)
from anabranch.limits import Limits
from anabranch.ports import Clock, SystemClock

__all__ = ["Call", "Finished", "Sink", "Waiting", "step_fingerprint"]

T = TypeVar("T")
T_op = TypeVar("T_op")
Sink = Callable[[Notice], Awaitable[None]]
logger = logging.getLogger("anabranch.call")

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


class Call(Generic[T]):
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
        self.journal = journal
        self.clock: Clock = clock or SystemClock()
        self.strands: dict[asyncio.Task[Any], Strand] = {}
        self.ledger = journal.spent()
        self.ledger[name] = sum(entry.tokens or 0 for entry in journal.entries.values())
        self.undos = Undos(journal)
        self.cancelled: set[str] = set()
        self.unentered: set[str] = set()
        self.closing = False
        self.root = Branch(self, None, name, limits or Limits())
        self._body = body
        self._sink = sink
        self._reached: set[str] = set()
        self._open: dict[str, tuple[Ask, asyncio.Future[Answer]]] = {}
        self._unseen: deque[Ask] = deque()
        self._task: asyncio.Task[T] | None = None
        self._watch: Quiescence | None = None
        self._changed: asyncio.Event = asyncio.Event()
        self._answering: dict[str, asyncio.Task[None]] = {}
        self._broken: BaseException | None = None
        self._fault: AnabranchError | None = None
        self._cold = False
        self._refused = 0
        self._settled = False
        self._made: list[Coroutine[Any, Any, Any]] = []
        self._sweep_at = 64

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
            # The caller may be cancelled for good (anyio cancels every further await).
            with anyio.CancelScope(shield=True):
                await self._let_go()
                await self.undos.pay(this_round_only=self._cold)

    def _start(self, *, cold: bool) -> None:
        if self._task is not None:
            raise RuntimeError("A Call runs once: build another one for the next round.")
        self._cold = cold
        if cold:
            self._watch = Quiescence(
                self.strands,
                lambda: (future for _, future in self._open.values()),
                self._changed.set,
            )
        self._task = adopt(self, self.root.run(self._body), self.root)  # type: ignore[arg-type]

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
        self._start(cold=True)
        assert self._task is not None
        await self._changed.wait()
        if self._task.done():
            return Finished(await self._conclude())
        blocked = [strand.task for strand in self.strands.values()]
        asks = tuple(ask for ask, _ in self._open.values())
        self._close_unstarted()
        await self._let_go()
        self._check_suspended(blocked, [ask.step_id for ask in asks])
        self._check_all_reached(None)
        if self._fault is not None:
            await self._fail(self._fault)
        self._settled = True
        self.journal.rounds += 1
        return Waiting(asks)

    async def asks(self) -> AsyncIterator[Ask]:
        """Yield each ask as it is made, while the body runs; ends when the body does.

        Answer with :meth:`answer`, in any order, while iterating. Afterwards :meth:`result` has
        the outcome.
        """
        self._start(cold=False)
        assert self._task is not None
        while True:
            while self._unseen:
                ask = self._unseen.popleft()
                if ask.step_id in self._open:
                    yield ask
            if self._task.done() or self._broken is not None:
                return
            self._changed.clear()
            await self._changed.wait()

    def answer(self, step_id: str, answer: Answer) -> bool:
        """Answer an open ask of a hot run; false if it is not open (any more)."""
        opened = self._open.get(step_id)
        if opened is None or opened[1].done():
            return False
        self.journal.answer({step_id: answer})
        opened[1].set_result(answer)
        return True

    def is_open(self, step_id: str) -> bool:
        """Whether somebody still waits for the answer to ``step_id``."""
        return step_id in self._open

    async def result(self) -> T:
        """Return what the body of a hot run returned, once :meth:`asks` has ended.

        Raises:
            Exception: as :meth:`round`.
        """
        return await self._conclude()

    async def drive(self, answerer: Callable[[Ask], Awaitable[Answer]]) -> T:
        """Run hot to the end: ``answerer`` is called for each ask, concurrently.

        Its task is cancelled when the ask is withdrawn (a lost race, a timeout).

        Raises:
            Exception: as :meth:`round`; or what ``answerer`` raised, which ends the call.
        """
        async def answer_one(ask: Ask) -> None:
            try:
                self.answer(ask.step_id, await answerer(ask))
            except Exception as error:
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

    async def _conclude(self) -> T:
        """Turn the ended root task into its value or its error."""
        assert self._task is not None
        task = self._task
        await self._let_go()
        error = None if task.cancelled() else task.exception()
        if task.cancelled():
            error = asyncio.CancelledError()
        self._check_all_reached(error)
        if self._fault is not None and error is not self._fault:
            self._fault.__cause__ = self._fault.__cause__ or error
            error = self._fault
        if error is not None:
            await self._fail(error)
        self._settled = True
        return task.result()

    async def _fail(self, error: BaseException) -> None:
        self._settled = True
        with anyio.CancelScope(shield=True):
            for problem in await self.undos.pay():
                error.add_note(f"An undo failed as well: {problem!r}")
        raise error

    async def _let_go(self) -> None:
        """Cancel what still runs, wait for its ``finally`` blocks, let nothing new happen."""
        self.closing = True
        if self._watch is not None:
            self._watch.stop()
        deadline = asyncio.get_running_loop().time() + LETTING_GO
        while self.strands:
            live = list(self.strands)
            for task in live:
                task.cancel()
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                self._refused = _REFUSALS  # from now on whatever they ask waits for ever
                break
            await asyncio.wait(live, timeout=left)

    def _check_suspended(self, blocked: Sequence[asyncio.Task[Any]], ids: list[str]) -> None:
        for task in blocked:
            if not task.done():
                found = f"task {task.get_name()!r} still runs {LETTING_GO:g} s later"
            elif task.cancelled():
                continue
            elif (error := task.exception()) is not None:
                found = f"it raised {type(error).__name__} instead"
            else:
                found = "it went on and returned a value"
            self._fault = self._fault or SuspensionError(ids, found)

    def _check_all_reached(self, error: BaseException | None) -> None:
        """Every recorded step must have been passed, or lie in what the program cancelled."""
        journal = self.journal
        for recorded in (journal.entries, journal.pending):
            for step_id in [known for known in recorded if known not in self._reached]:
                if self._is_excused(step_id):
                    del recorded[step_id]
                elif self._fault is None:
                    found = "not reached" if error is None else f"{type(error).__name__} before it"
                    self._fault = NonDeterminismError(step_id, "a step", found)

    def _is_excused(self, step_id: str) -> bool:
        path = step_id
        while path:
            if path in self.cancelled or path in self.unentered:
                return True
            path = path.rpartition("/")[0]
        return False

    def _close_unstarted(self) -> None:
        """The body would have come to these operations later; they were not forgotten."""
        for operation in self._made:
            if inspect.getcoroutinestate(operation) == inspect.CORO_CREATED:
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
            self._changed.set()
        elif strand.task.cancelled() and not self.closing:
            self.cancelled.add(strand.path)
        if not strand.task.cancelled() and self.closing:
            strand.task.exception()  # looked at: the call's own outcome says what happened
        self.stir()

    # -- what branches and contexts use ------------------------------------------------------

    def made(self, operation: Coroutine[Any, Any, T_op]) -> Coroutine[Any, Any, T_op]:
        """Return ``operation``; remember it, in case the round ends before the body awaits it."""
        if self._cold:
            self._made.append(operation)
            if len(self._made) >= self._sweep_at:
                self._made = [
                    one
                    for one in self._made
                    if inspect.getcoroutinestate(one) == inspect.CORO_CREATED
                ]
                self._sweep_at = 2 * len(self._made) + 64
        return operation

    def new_id(self, scope: Scope, name: str, key: str | None = None) -> str:
        """Name the next step here: ``key`` in the enclosing branch, or the next ``name``.

        Raises:
            ValueError: the key has been used in this branch before.
            NonDeterminismError: the task was started from a set, so that its steps' names would
                differ from run to run.
        """
        if key is not None:
            branch = scope.branch
            step_id = key if branch.parent is None else f"{branch.path}/{key}"
            if step_id in self._reached:
                raise ValueError(f"The key {key!r} was used twice; a key names one step of a call.")
        else:
            if scope.strand.unordered:
                raise NonDeterminismError(
                    f"{scope.path}/{name}",
                    "tasks started in an order of their own",
                    "asyncio.as_completed over coroutines, which starts them from a set: pass it"
                    " ctx operations or tasks, or give key=",
                )
            step_id = f"{scope.path}/{name}.{scope.count(name)}"
        self._reached.add(step_id)
        return step_id

    def new_attempt(self, step_id: str, attempt: int) -> str:
        """Name the repetition of an ask; the first attempt, 1, is the ask itself."""
        if attempt == 1:
            return step_id
        again = f"{step_id}~{attempt}"
        self._reached.add(again)
        return again

    def open_asks(self, *kinds: AskKind) -> list[str]:
        """Return the ids of the asks of these kinds that wait for an answer."""
        return [step_id for step_id, (ask, _) in self._open.items() if ask.kind in kinds]

    def new_path(self, scope: Scope, name: str) -> str:
        """Name the next sub-branch here."""
        path = f"{scope.path}/{name}#{scope.count(name)}"
        self._reached.add(path)
        self.unentered.add(path)
        return path

    def recall(self, step_id: str, kind: str, asked: str) -> Entry | None:
        """Return what is recorded at ``step_id``, ``None`` if nothing is.

        Raises:
            NonDeterminismError: something else is recorded there. The call ends with this error
                even if the body catches it.
        """
        if self._fault is not None:
            raise self._fault
        entry = self.journal.entries.get(step_id)
        if entry is not None:
            recorded = (entry.kind, entry.fingerprint)
        elif step_id in self.journal.pending:
            recorded = self.journal.pending[step_id]
        else:
            return None
        if recorded != (kind, asked):
            self._fault = NonDeterminismError(step_id, " ".join(recorded), f"{kind} {asked}")
            raise self._fault
        return entry

    def record(self, step_id: str, entry: Entry, branch: Branch) -> Entry:
        """Write ``entry`` down; from here on it is part of every replay."""
        self.journal.entries[step_id] = entry
        branch.ids.append(step_id)
        return entry

    def is_replaying(self, path: str) -> bool:
        """Whether something recorded below ``path`` has not been passed yet."""
        below = f"{path}/"
        return any(
            known.startswith(below) and known not in self._reached for known in self.journal.entries
        )

    async def go_live(self, scope: Scope, step_id: str) -> None:
        """Pass only if something new may happen here; otherwise this strand is to end.

        Raises:
            asyncio.CancelledError: the round has ended.
        """
        if self._fault is not None:
            raise self._fault
        if self.closing:
            await self._refuse()
        branch: Branch | None = scope.branch
        while branch is not None:
            if branch.stop_if_expired():
                await asyncio.get_running_loop().create_future()
            branch = branch.parent

    async def _refuse(self) -> None:
        """Cancel the strand again. One that swallows this for ever is left parked for ever."""
        self._refused += 1
        if self._refused > _REFUSALS:
            await asyncio.get_running_loop().create_future()
        await asyncio.sleep(0)
        raise asyncio.CancelledError

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

        ``make_request`` is called only if the question must really be asked; it may refuse.
        ``responder`` answers it here, on the server, as an effect; without one it goes out.

        Raises:
            StepFailed: the answer was an error.
            NonDeterminismError: something else was asked here before.
        """
        entry = self.recall(step_id, kind, asked)
        if entry is None:
            await self.go_live(scope, step_id)
            ask = Ask(step_id, kind, make_request(), asked)
            if responder is None:
                entry = await self._park(ask)
            else:
                entry = await self._respond(scope.strand, ask, responder)
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

    async def _park(self, ask: Ask) -> Entry:
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._open[ask.step_id] = (ask, future)
        self.journal.pending[ask.step_id] = (ask.kind, ask.fingerprint)
        if self._cold:
            self.stir()
        else:
            self._unseen.append(ask)
            self._changed.set()
        try:
            await future
        finally:
            del self._open[ask.step_id]
            if (answering := self._answering.pop(ask.step_id, None)) is not None:
                answering.cancel()  # nobody waits for this answer any more
            if not self.closing:
                self.journal.pending.pop(ask.step_id, None)
        return self.journal.entries[ask.step_id]

    async def step(
        self,
        scope: Scope,
        step_id: str,
        asked: str,
        effect: Effect,
    ) -> Any:
        """Run ``effect`` once per call and return its value, now and in every replay.

        ``asked`` pins what is done (:func:`step_fingerprint`).

        Raises:
            StepFailed: it raised (or the ``AnabranchError`` that it raised).
            SerializationError: its value cannot be recorded; the call fails.
        """
        entry = self.recall(step_id, "step", asked)
        cause: BaseException | None = None
        first = entry is None
        if entry is None:
            await self.go_live(scope, step_id)
            if effect.undo is not None and scope.strand.racing:
                _require_reference(step_id, effect.undo)
            try:
                entry, cause = await perform(scope.strand, step_id, asked, effect)
            except SerializationError as error:
                self._fault = error
                raise
            self.record(step_id, entry, scope.branch)
        else:
            scope.branch.ids.append(step_id)
        if entry.error is not None:
            raise error_from_json(entry.error) from cause
        self.undos.bind(step_id, effect, first=first)
        if cause is not None:
            raise cause
        return codec_of(effect.function).decode(step_id, entry.value)

    async def notify(self, scope: Scope, notice: Notice) -> None:
        """Deliver ``notice``, unless an earlier round did."""
        number = scope.count("!")
        delivered = self.journal.delivered
        if self.closing or number <= delivered.get(scope.path, 0):
            return
        await self.go_live(scope, scope.path)
        if scope.path not in delivered:
            scope.branch.noticed.append(scope.path)
        delivered[scope.path] = number
        self.journal.progressed += notice.level is None
        scope.strand.effects += 1
        try:
            await self._sink(notice)
        finally:
            scope.strand.effects -= 1
            self.stir()

    async def race(self, scope: Scope, step_id: str, operations: Sequence[Awaitable[T]]) -> T:
        """Return the value of the operation that ends first; replays go straight to it."""
        entry = self.recall(step_id, "race", "")
        if entry is not None:
            scope.branch.ids.append(step_id)
            winner = int(entry.value)  # type: ignore[arg-type]
            for position, operation in enumerate(operations):
                if position != winner:
                    discard(operation)
            return await operations[winner]
        strand, was_racing = scope.strand, scope.strand.racing
        strand.racing = True
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
        if entry is None:
            entry = self.record(step_id, Entry("now", "", self.clock.now()), scope.branch)
        else:
            scope.branch.ids.append(step_id)
        return float(entry.value)  # type: ignore[arg-type]

    def unique(self, scope: Scope, name: str) -> uuid.UUID:
        """Return a UUID that only this place of this call has, the same in every replay."""
        place = f"{self.journal.call_id}:{scope.path}/{name}.{scope.count(name)}"
        return uuid.UUID(bytes=blake2b(place.encode(), digest_size=16).digest(), version=4)


def step_fingerprint(function: Callable[..., Any], args: Sequence[Any]) -> str:
    """Pin the function's name and its arguments; those that are not JSON, by their type."""
    name = getattr(function, "__qualname__", type(function).__qualname__)
    try:
        return fingerprint(name, *args)
    except (TypeError, ValueError, RecursionError):
        return fingerprint(name, *map(_pinned, args))


def _pinned(value: Any) -> JsonValue:
    try:
        return [fingerprint(codec_of(type(value)).encode("", value))]
    except (SerializationError, TypeError, ValueError):
        return type(value).__qualname__


def _require_reference(step_id: str, undo: Callable[..., Any]) -> None:
    if reference_to(undo) is None:
        raise SerializationError(
            step_id, "undo", "inside race() an undo must be a function found in its module"
        )


"""What a running body does: ask, run a step, notify, race, look at the clock.

Owns each of these operations and the asks that are open. Every operation first looks its record
up; only then may anything happen, and what has happened is written down before the body sees it.
It never starts or ends a run, and does not decide when a round is over: ``machine.py`` does.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager
from hashlib import blake2b
from types import CoroutineType
from typing import Any, NamedTuple, NoReturn, TypeVar, cast

from anabranch._engine.branch import Branch
from anabranch._engine.clock import Clock
from anabranch._engine.codec import codec_of
from anabranch._engine.combine import first_of, only
from anabranch._engine.cursor import Course
from anabranch._engine.effects import Effect, Interrupted, Undos, perform, require_references
from anabranch._engine.journal import Answer, Ask, AskKind, Entry, Journal, Notice
from anabranch._engine.open_asks import OpenAsks
from anabranch._engine.quiescence import Quiescence
from anabranch._engine.recorder import Recorder, Records
from anabranch._engine.strands import Scope, Strand, current_strand
from anabranch.errors import (
    AnabranchError,
    SerializationError,
    SuspensionError,
    error_from_json,
    error_to_json,
)

__all__ = ["REFUSALS", "Operations", "Quiet", "Sink", "unstarted"]

T = TypeVar("T")
T_op = TypeVar("T_op")
Sink = Callable[[Notice], Awaitable[None]]
logger: logging.Logger = logging.getLogger("anabranch.engine")

REFUSALS = 100
"""How often a run that is over cancels strands again before it leaves them parked."""


class Quiet(NamedTuple):
    """How a round has ended: the open asks, who asked what, and whether nobody could go on."""

    asks: tuple[Ask, ...]
    asked_by: dict[asyncio.Task[Any], list[str]]
    certain: bool


class Operations(Course):
    """The operations of one run, as branches and contexts use them.

    Attributes:
        open: the asks that wait.
        records: what is to be written before it is seen.
        undos: what is owed if the call fails.
        strands: the tasks of the run; ``in_effect`` those that are inside of an effect.
        closing: the run is over; nothing new may happen.
        suspending: it is over because all strands wait.
        broken_off: it is over because nothing can be written any more.
        unwinding: it is run only to be undone: what is new waits for ever.
    """

    def __init__(
        self, journal: Journal, name: str, *, clock: Clock, sink: Sink, recorder: Recorder | None
    ) -> None:
        super().__init__(journal, name)
        self.clock: Clock = clock
        self.open: OpenAsks = OpenAsks(journal)
        self.records: Records = Records(journal, recorder)
        self.undos: Undos = Undos(journal)
        self.strands: dict[asyncio.Task[Any], Strand] = {}
        self.in_effect: set[asyncio.Task[Any]] = set()
        self.closing: bool = False
        self.suspending: bool = False
        self.unwinding: bool = False
        self._sink = sink
        self._cold = False
        self._watch: Quiescence | None = None
        self._changed: asyncio.Event = asyncio.Event()
        self._answering: dict[str, asyncio.Task[None]] = {}
        self.broken_off: bool = False
        self._broken: Exception | None = None
        self._quiet: Quiet | None = None
        self._refused = 0
        self._repay: Callable[[], Coroutine[Any, Any, list[BaseException]]] | None = None
        self._made: list[Coroutine[Any, Any, Any]] = []
        self._sweep_at = 64
        self._stalled: list[asyncio.Future[None]] = []

    # -- the state of the run ------------------------------------------------------------------

    def _not_suspended(self, own: list[str], found: str) -> None:
        if self.fault is None and self._quiet is not None:
            self.fail_with(SuspensionError(own or [a.step_id for a in self._quiet.asks], found))

    def stir(self) -> None:
        """A strand's state may have changed."""
        if self._watch is not None:
            self._watch.stir()

    def record(self, step_id: str, entry: Entry, branch: Branch) -> Entry:
        """Write ``entry`` down; from here on it is part of every replay."""
        self.records.add(step_id, entry)
        return super().record(step_id, entry, branch)

    def stop_watching(self) -> None:
        """The round will not end because all is quiet: it ends in another way."""
        if self._watch is not None:
            self._watch.stop()

    def parked(self) -> Iterator[asyncio.Future[None]]:
        """Yield what no strand can get in this round."""
        yield from self.open.futures()
        yield from self._stalled

    def break_off(self, error: Exception) -> None:
        """End the run here, as a crash would: nothing is undone, for nothing could be written."""
        self.broken_off = True
        self._broken = self._broken or error
        self.stop_strands()
        self._changed.set()

    def stop_strands(self) -> None:
        """Cancel all strands; from now on nothing new happens."""
        self.closing = True
        self.stop_watching()
        for task in self.strands:
            task.cancel()

    def made(self, operation: Coroutine[Any, Any, T_op]) -> Coroutine[Any, Any, T_op]:
        """Return ``operation``; remember it, in case the round ends before the body awaits it."""
        if self._cold:
            self._made.append(operation)
            if len(self._made) >= self._sweep_at:
                self._made = unstarted(self._made)
                self._sweep_at = 2 * len(self._made) + 64
        return operation

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
        if self.unwinding:
            await self._stall()
        branch: Branch | None = scope.branch
        while branch is not None:
            if branch.expired:
                await branch.stop()
            branch = branch.parent
        return strand

    async def _stall(self) -> None:
        """Wait as if for an answer that does not come."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._stalled.append(future)
        self.stir()
        await future

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
        if self._refused > REFUSALS:
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
        async with self._effect(strand):
            answer = await responder(ask.request)
            entry = Entry(ask.kind, ask.fingerprint, answer.value, answer.error, tokens=None)
            self.journal.entries[ask.step_id] = entry
            self.records.add(ask.step_id, entry)
        return self.journal.entries.get(ask.step_id, entry)

    async def _park(self, strand: Strand, ask: Ask) -> Entry:
        future = self.open.open(ask, strand.task)
        if self._cold:
            self.stir()
        else:
            self._changed.set()
        try:
            await future
        finally:
            self._unpark(ask.step_id)
        return self.journal.entries[ask.step_id]

    def _unpark(self, step_id: str) -> None:
        if (answering := self._answering.pop(step_id, None)) is not None:
            answering.cancel()  # nobody waits for this answer any more
        # Answered, or withdrawn; or just interrupted by the round's end.
        self.open.close(step_id, withdrawn=not self.closing)
        if not self.closing:
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

    def key_of_effect(self, scope: Scope, place: int | str) -> str:
        """Return the idempotency key of the effect at ``place`` in ``scope``."""
        named = place if isinstance(place, str) else f"step.{place}"
        return f"{self.journal.line}:{scope.path}/{named}"

    async def _run_effect(self, scope: Scope, step_id: str, asked: str, effect: Effect) -> Entry:
        strand = await self.go_live(scope, step_id)
        if effect.undo is not None and strand.racing:
            require_references(step_id, effect)
        async with self._effect(strand):
            try:
                key = self.key_of_effect(scope, effect.place)
                entry, cause = await perform(step_id, asked, effect, key)
            except SerializationError as error:
                self.fail_with(error)
                raise
            self.record(step_id, entry, scope.branch)
            if entry.error is None:
                self.undos.bind(step_id, effect, first=True)
        if self._repay is not None and entry.error is None:  # the call was over before a thread was
            await self._repay()
        if isinstance(cause, Interrupted):
            raise cause
        first = self.journal.entries.get(step_id, entry)  # another run's, if there was one
        if (first.error is None) != (entry.error is None):
            self.undos.correct(step_id, effect, done=first.error is None)
        entry = first
        if entry.error is not None:
            raise error_from_json(entry.error) from cause
        return entry

    @asynccontextmanager
    async def _effect(self, strand: Strand) -> AsyncGenerator[None]:
        """Mark ``strand`` as busy; have what has happened written, before and after.

        Before: what the effect depends on must not be another in a second try, under the same key.

        Raises:
            asyncio.CancelledError: nothing can be written; the run ends.
        """
        strand.effects += 1
        self.in_effect.add(strand.task)
        try:
            await self._recorded(self.records.write_ahead)
            if self.closing:  # while that was being written
                raise asyncio.CancelledError
            yield
            await self._recorded(self.records.write)
        finally:
            self.in_effect.discard(strand.task)
            strand.effects -= 1
            self.stir()
            if self.closing:
                self._changed.set()

    async def _recorded(self, write: Callable[[], Awaitable[None]]) -> None:
        try:
            await write()
        except Exception as error:
            self.break_off(error)
            raise asyncio.CancelledError from error

    async def notify(self, scope: Scope, notice: Notice) -> None:
        """Deliver ``notice``, unless an earlier round did."""
        scope.check_order("notice")
        number = scope.count("!")
        if number == 1:
            scope.branch.noticed.append(scope.path)
        delivered = self.journal.delivered
        if self.closing or self.unwinding or number <= delivered.get(scope.path, 0):
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


def unstarted(operations: list[Coroutine[Any, Any, Any]]) -> list[Coroutine[Any, Any, Any]]:
    """Return those that nobody has awaited yet (``inspect.getcoroutinestate``, but quicker)."""
    made = cast("list[CoroutineType[Any, Any, Any]]", operations)
    return [
        one for one in made if not (one.cr_suspended or one.cr_running) and one.cr_frame is not None
    ]

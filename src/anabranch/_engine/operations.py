"""Operations of a running body: ask, sleep, race, notify, read the clock, draw random numbers."""

from __future__ import annotations

import logging
import random
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any, TypeVar, cast

from anabranch._aio import Clock, first_of, replay_race
from anabranch._engine.branch import Branch
from anabranch._engine.codec import Codec, same
from anabranch._engine.cursor import ReplayCursor
from anabranch._engine.effects import Effects
from anabranch._engine.journal import DEFAULTS, Answer, Ask, AskKind, Entry, Notice
from anabranch._engine.open_asks import Alarm, OpenAsks
from anabranch._engine.recorder import Observe, unobserved
from anabranch._engine.scheduler import Scheduler
from anabranch._engine.strands import Scope, Strand, current_strand
from anabranch._engine.survey import Barrier
from anabranch.errors import AnabranchError, SerializationError, error_from_json, error_to_json

T = TypeVar("T")
Sink = Callable[[Notice], Awaitable[None]]
logger: logging.Logger = logging.getLogger("anabranch.engine")


async def discard(notice: Notice) -> None:
    """Log ``notice``: the sink of a call whose notices are delivered to nothing but the log."""
    logger.debug("notice without a reader: %s", notice)


class Operations:
    def __init__(
        self,
        cursor: ReplayCursor,
        scheduler: Scheduler,
        effects: Effects,
        asks: OpenAsks,
        clock: Clock,
        sink: Sink,
        observe: Observe = unobserved,
    ) -> None:
        self._cursor = cursor
        self._scheduler = scheduler
        self._effects = effects
        self._asks = asks
        self._clock = clock
        self._sink = sink
        self._observe = observe
        self._barrier = Barrier(scheduler.strands, scheduler.parked)

    def recorded(self, scope: Scope, step_id: str, kind: AskKind, asked: str) -> Entry | None:
        """Return the answer's entry if it is recorded and the run has no fault; raise a recorded error.

        An entry of the kind ``REFUSED`` holds an answer to other words: ask again, as another
        attempt.
        """
        if self._cursor.fault is not None:  # go_live() raises it
            return None
        entry = self._cursor.recall(step_id, kind, asked, scope.branch)
        if entry is not None and entry.error is not None:
            raise error_from_json(entry.error)
        return entry

    async def ask(
        self,
        scope: Scope,
        step_id: str,
        kind: AskKind,
        asked: str,
        make_request: Callable[[], Any],
        responder: Callable[[Any], Awaitable[Answer]] | None = None,
    ) -> Entry:
        """Return the answer's entry if it is recorded; otherwise ask, and wait for the answer.

        An ``AnabranchError`` of ``make_request`` is recorded, because the reasons of a refusal
        (spent tokens, open asks) may differ in a replay. ``responder`` answers on the server, as an
        effect; without one the question goes out. Under a budget, ``responder`` starts when no
        strand is about to run: by then, all requests made at the same time have been admitted or
        refused.
        """
        cursor = self._cursor
        if (known := self.recorded(scope, step_id, kind, asked)) is not None:
            return known
        strand = await self._scheduler.go_live(scope, step_id)
        try:
            ask = Ask(step_id, kind, make_request(), asked)
        except AnabranchError as refusal:
            refused = Entry(kind, asked, error=error_to_json(refusal))
            # A replay with a larger budget would ask, and take another way:
            # test_a_request_refused_by_a_limit_is_refused_in_every_replay.
            cursor.record(step_id, refused, scope.branch)
            raise
        with self._observe(kind, step_id):
            if responder is None:
                await self._park(strand, ask, scope.branch)
            else:
                async with self._effects.running(strand):
                    # The first answer could spend the budget before the others are admitted:
                    # test_simultaneous_questions_are_admitted_before_the_first_answer.
                    if scope.branch.account.is_limited:
                        await self._barrier.wait()
                    cursor.answer_here(ask, await responder(ask.request), scope.branch)
            entry = cursor.answered(step_id)
            if entry.error is not None:
                raise error_from_json(entry.error)
            return entry

    async def _park(self, strand: Strand, ask: Ask, branch: Branch) -> None:
        future = self._asks.open(ask, strand.task)
        self._cursor.ask(ask)
        self._scheduler.park(future)
        # Otherwise a sleep would win against an answer that came before its end:
        # test_an_answer_known_to_be_earlier_wins_against_the_clock.
        wakes = ask.kind == "sleep" and ask.step_id not in self._cursor.journal.held
        alarm = Alarm(self._clock, ask, self._wake) if wakes else None
        try:
            await future
        finally:
            if alarm is not None:
                alarm.cancel()
            self._scheduler.parked.discard(future)
            self._asks.close(ask.step_id)
            if self._cursor.recorded(ask.step_id) is not None:
                branch.ids.append(ask.step_id)  # even if the task is cancelled just now
            if not self._scheduler.closing:  # a closing round leaves the ask open
                self._cursor.withdraw(ask.step_id)
                self._scheduler.stir()

    async def sleep(self, scope: Scope, step_id: str, until: float) -> None:
        """Wait until the clock has reached ``until``: an ask that only the clock answers."""
        await self.ask(scope, step_id, "sleep", repr(until), lambda: until)

    def _wake(self, ask: Ask) -> None:
        if self._asks.is_awaited(ask.step_id):  # not cancelled just now
            self._cursor.wake(ask)
            self._asks.wake(ask.step_id)

    def answer_late(self, late: Mapping[str, Entry]) -> bool:
        """Give the body answers that came after a sleep's time; return whether a strand awaited one."""
        for step_id, entry in late.items():
            self._cursor.answer_late(step_id, entry)
        awaited = [step_id for step_id in late if self._asks.is_open(step_id)]
        for step_id in awaited:
            self._asks.wake(step_id)
        return bool(awaited)

    def answer(self, step_id: str, answer: Answer) -> bool:
        if not self._asks.is_open(step_id):
            return False
        self._cursor.answer(step_id, answer)
        self._asks.wake(step_id)
        return True

    def open_ids(self, *kinds: AskKind) -> list[str]:
        return [ask.step_id for ask in self._asks.asks() if ask.kind in kinds]

    async def race(self, scope: Scope, step_id: str, operations: Sequence[Awaitable[T]]) -> T:
        """Return the value of the operation that ends first; a replay runs only the winner."""
        entry = self._cursor.recall(step_id, "race", "", scope.branch)
        # A second race could have another winner: test_a_replay_does_not_race_again.
        if entry is not None:
            return await replay_race(operations, int(cast("int", entry.value)))
        strand = current_strand()
        # Steps of the losers are not replayed, so their undos need a name:
        # test_in_a_race_a_step_with_an_undo_must_be_found_by_name.
        was_racing, strand.racing = strand.racing, True
        try:
            winner, future = await first_of(operations)
        finally:
            strand.racing = was_racing
        if not self._scheduler.closing:
            self._cursor.record(step_id, Entry("race", "", winner), scope.branch)
        return future.result()

    async def notify(self, scope: Scope, notice: Notice) -> None:
        """Deliver ``notice``, unless an earlier round did."""
        scope.check_order("notice")
        number = scope.count("!")
        if number == 1:
            scope.branch.noticed.append(scope.path)
        journal, scheduler = self._cursor.journal, self._scheduler
        if scheduler.closing or scheduler.replaying:
            return
        # Every round would deliver the notice again:
        # test_a_notice_is_delivered_once_over_all_rounds.
        if number <= journal.delivered.get(scope.path, 0):
            return
        strand = await scheduler.go_live(scope, scope.path)
        await scheduler.may_begin()
        journal.delivered[scope.path] = number
        journal.progressed += notice.level is None
        strand.effects += 1
        try:
            await self._sink(replace(notice, id=f"{journal.line}:{scope.path}!{number}"))
        finally:
            strand.effects -= 1
            scheduler.stir()

    def now(self, scope: Scope) -> float:
        """Return the time of the first run, seconds since the epoch."""
        step_id = self._cursor.new_id(scope, "now")
        entry = self._cursor.recall(step_id, "now", "", scope.branch)
        if entry is not None:
            return float(cast("float", entry.value))
        now = self._clock.now()
        if not self._scheduler.closing:
            self._cursor.record(step_id, Entry("now", "", now), scope.branch)
        return now

    def first(
        self, branch: Branch, place: str, codec: Codec, value: T, again: Callable[[], object]
    ) -> T:
        """Return the ``value`` of the first run at ``place``.

        A value that ``codec`` cannot record stays unchanged if ``again`` makes an equal one.
        Otherwise, raise ``SerializationError``.
        """
        step_id = f"{place}~{DEFAULTS}"
        entry = self._cursor.recall(step_id, DEFAULTS, "", branch)
        if entry is not None:
            return cast("T", codec.decode(step_id, entry.value))
        if not self._scheduler.closing:
            try:
                written = codec.record(step_id, value)
            except SerializationError as problem:
                if same(value, again()):
                    return value
                reason = f"a default differs in each round, and {problem.reason}"
                raise SerializationError(step_id, problem.type_name, reason) from problem
            self._cursor.record(step_id, Entry(DEFAULTS, "", written), branch)
            return cast("T", codec.decode(step_id, written))
        return value

    def random(self, scope: Scope) -> random.Random:
        """Return randomness that is the same in every replay."""
        scope.check_order("random")
        if scope.randomness is None:
            scope.randomness = random.Random(self._seed(scope))  # noqa: S311 - a replay repeats it
        return scope.randomness

    def unique(self, scope: Scope, name: str) -> uuid.UUID:
        """Return a UUID for the next use of ``name`` in ``scope``, the same in every replay."""
        scope.check_order(name)
        place = f"{self._seed(scope)}:{name}.{scope.count(name)}"
        return uuid.UUID(bytes=blake2b(place.encode(), digest_size=16).digest(), version=4)

    def _seed(self, scope: Scope) -> str:
        """Return the recorded seed of ``scope``, or record a seed made from the call's secret.

        The seed itself is recorded, since the secret may change: a store has no state of a call
        whose first round was interrupted.
        """
        if scope.seed is None:
            step_id = self._cursor.new_id(scope, "seed")
            entry = self._cursor.recall(step_id, "seed", "", scope.branch)
            if entry is None:
                journal = self._cursor.journal
                place = f"{journal.secret}:{journal.call_id}:{scope.path}"
                entry = Entry("seed", "", blake2b(place.encode(), digest_size=16).hexdigest())
                if not self._scheduler.closing:
                    self._cursor.record(step_id, entry, scope.branch)
            scope.seed = str(entry.value)
        return scope.seed

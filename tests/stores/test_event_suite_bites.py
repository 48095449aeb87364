"""The suite for stores of run events finds broken promises: each saboteur here breaks one."""

import math
import zlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any, TypeAlias

import pytest

from anabranch._durable import (
    EventBatch,
    EventId,
    MissedEventsError,
    NewEvents,
    RunEvents,
    TakenTurn,
    TurnRecord,
    TurnState,
)
from anabranch.stores import open_run_events
from tests.stores.sabotage import Forwarding, assert_found
from tests.suites import run_event_checks as suite
from tests.suites import run_turn_checks as turns
from tests.suites.run_event_checks import RunEventCheck
from tests.suites.run_turn_checks import RUN_EVENT_CHECKS
from tests.suites.turn_samples import put_turn

At: TypeAlias = int | EventId


def _number(at: At) -> int:
    return at if isinstance(at, int) else at.number


class Saboteur(Forwarding):
    def __init__(self) -> None:
        self.good: RunEvents = open_run_events("memory:")

    @property
    def per_share(self) -> int | None:
        return self.good.per_share

    @per_share.setter
    def per_share(self, most: int) -> None:
        self.good.per_share = most


class NumbersFromZero(Saboteur):
    async def append(self, run: str, events: Sequence[bytes], **options: Any) -> int:
        return await self.good.append(run, events, **options) - 1


class HasOneRun(Saboteur):
    async def append(self, run: str, events: Sequence[bytes], **options: Any) -> int:
        return await self.good.append("r", events, **options)


class AppendsOneByOne(Saboteur):
    async def append(self, run: str, events: Sequence[bytes], **options: Any) -> int:
        last = await self.good.last(run)
        for event in events:
            last = await self.good.append(run, [event], **options)
        return last


class AppendsToTheFirstRunOnly(Saboteur):
    async def append_all(self, new: Sequence[NewEvents], *, at: float) -> None:
        await self.good.append_all(new[:1], at=at)


class ReleasesNothingOfSeveral(Saboteur):
    async def append_all(self, new: Sequence[NewEvents], *, at: float) -> None:
        await self.good.append_all([replace(each, ends=False) for each in new], at=at)


class CutsAtNul(Saboteur):
    async def append_all(self, new: Sequence[NewEvents], *, at: float) -> None:
        cut = [[each.partition(b"\0")[0] for each in one.events] for one in new]
        pairs = zip(new, cut, strict=True)
        await self.good.append_all([replace(one, events=events) for one, events in pairs], at=at)


class Follower(Saboteur):
    async def start(self, run: str, after: At) -> At:
        return after

    def sees(self, batch: EventBatch) -> EventBatch:
        return batch

    async def follow(self, run: str, after: At) -> AsyncGenerator[EventBatch]:
        start = await self.start(run, after)
        async with aclosing(self.good.follow(run, start)) as following:
            async for batch in following:
                yield self.sees(batch)


class RepeatsTheLast(Follower):
    async def start(self, run: str, after: At) -> At:
        return after if isinstance(after, EventId) else max(after - 1, 0)


class DropsForTheSlow(Follower):
    def sees(self, batch: EventBatch) -> EventBatch:
        first, events, marks = batch
        return EventBatch(first + 1, events[1:], marks[1:]) if len(events) > 1 else batch


class HoldsEverything(Follower):
    async def follow(self, run: str, after: At) -> AsyncGenerator[EventBatch]:
        held: list[bytes] = []
        marks: list[int] = []
        async with aclosing(super().follow(run, after)) as following:
            async for batch in following:
                held, marks = [*held, *batch.events], [*marks, *batch.marks]
                if batch.first == 1 or len(held) == await self.good.last(run):
                    yield EventBatch(batch.first + len(batch.events) - len(held), held, marks)
                    held, marks = [], []


class TakesUnknownNumbersForTheEnd(Follower):
    async def start(self, run: str, after: At) -> At:
        return min(max(_number(after), 0), await self.good.last(run))


class DoesNotReportGaps(Follower):
    async def follow(self, run: str, after: At) -> AsyncGenerator[EventBatch]:
        try:
            async with aclosing(super().follow(run, after)) as following:
                async for batch in following:
                    yield batch
        except MissedEventsError as error:
            yield EventBatch(error.last.number, [b"something"], [error.last.mark])


class TrustsNumbers(Follower):
    async def start(self, run: str, after: At) -> At:
        return _number(after)


class ProvesTheEventAlone(TrustsNumbers):
    """Identifies an event by a digest of its bytes alone, which another run may share."""

    def sees(self, batch: EventBatch) -> EventBatch:
        return batch._replace(marks=[zlib.crc32(each) for each in batch.events])

    async def id_of(self, run: str, number: int | None = None) -> EventId:
        at = await self.good.last(run) if number is None else number
        if at < 1:
            return EventId(0, 0)
        async with aclosing(self.good.follow(run, at - 1)) as following:
            return EventId(at, zlib.crc32((await anext(following)).events[0]))

    async def start(self, run: str, after: At) -> At:
        number, last = _number(after), await self.good.last(run)
        is_trusted = isinstance(after, int) or number == 0
        if number > last or not (is_trusted or await self.id_of(run, number) == after):
            raise MissedEventsError(run, number, await self.id_of(run))
        return number


class ForgetsTheMarkOfWhatIsDeleted(Saboteur):
    async def id_of(self, run: str, number: int | None = None) -> EventId:
        found = await self.good.id_of(run, number)
        try:
            await anext(self.good.follow(run, found.number - 1))
        except MissedEventsError:
            return EventId(found.number, 0)
        return found


class FindsTheLast(Saboteur):
    keys: dict[tuple[str, str], int]

    async def append_all(self, new: Sequence[NewEvents], *, at: float) -> None:
        await self.good.append_all(new, at=at)
        for run, events, key in ((each.run, each.events, each.key) for each in new):
            first = await self.good.last(run) - len(events) + 1
            self.keys = {**vars(self).get("keys", {}), (run, key): first}

    async def find(self, run: str, key: str) -> int | None:
        return self.keys.get((run, key))


class PrunesWithoutLimit(Saboteur):
    async def prune(self, before: float, limit: int) -> int:
        return await self.good.prune(before, limit + 1000)


class BeginsOverATurn(Saboteur):
    async def begin(self, run: str, *values: Any, at: float) -> int | None:
        if (turn := await self.good.turn(run)) and turn.due < at:
            await self.good.move(run, turn, None)
        return await self.good.begin(run, *values, at=at)


class BeginsAgain(Saboteur):
    async def begin(self, run: str, turn: TurnRecord, event: bytes, *, at: float) -> Any:
        first = replace(turn, id=f"{turn.id} {at}")
        begun = await self.good.begin(run, first, event, at=at)
        await self.good.move(run, first, turn)
        return begun


class BeginsWithoutALook(Saboteur):
    async def begin(self, *values: Any, at: float) -> int | None:
        return await self.good.begin(*values, at=0.0)


class TakesWithoutALook(Saboteur):
    async def take(self, run: str, *values: Any, **options: Any) -> TakenTurn | None:
        taken = await self.good.take(run, *values, **options)
        await self.good.look(run, 105.0)
        return taken


class ClaimsEarly(Saboteur):
    async def claim(self, now: float, *values: Any, **options: Any) -> Sequence[str]:
        return await self.good.claim(now + 1, *values, **options)


class ClaimsAgain(Saboteur):
    async def claim(self, now: float, until: float, limit: int, **options: Any) -> Sequence[str]:
        return await self.good.claim(now, now, limit, **options)


class ClaimsWithoutLimit(Saboteur):
    async def claim(self, now: float, until: float, limit: int, **options: Any) -> Sequence[str]:
        return await self.good.claim(now, until, 9, **options)


class ClaimsForAnyVersion(Saboteur):
    async def claim(self, *values: Any, **options: Any) -> Sequence[str]:
        return await self.good.claim(*values, **{**options, "version": "1"})


class ClaimsWhatRuns(Saboteur):
    async def claim(self, now: float, until: float, limit: int, **options: Any) -> Sequence[str]:
        held = [run for run, _ in await self.good.overdue(now, limit, is_running=True)]
        return [*held, *await self.good.claim(now, until, limit, **options)]


class PutsOffItsLook(Saboteur):
    async def claim(self, now: float, until: float, limit: int, **options: Any) -> Sequence[str]:
        found = await self.good.claim(now, until, limit, **options)
        for run in found:
            if turn := await self.good.turn(run):
                await self.good.move(run, turn, None)
                await self.good.looked(run, until, now=0.0)
                await put_turn(self.good, run, turn)
        return found


class Unlimited(Saboteur):
    @asynccontextmanager
    async def without_limit(self) -> AsyncGenerator[None]:
        most, self.good.per_share = self.good.per_share, None
        yield
        self.good.per_share = most


class ClaimsForAnyShare(Unlimited):
    async def claim(self, *values: Any, **options: Any) -> Sequence[str]:
        async with self.without_limit():
            return await self.good.claim(*values, **options)


class TakesForAnyShare(Unlimited):
    async def take(self, run: str, *values: Any, **options: Any) -> TakenTurn | None:
        async with self.without_limit():
            return await self.good.take(run, *values, **options)


class BeginsForAnyShare(Unlimited):
    async def begin(self, *values: Any, **options: Any) -> int | None:
        async with self.without_limit():
            return await self.good.begin(*values, **options)


class PutsOffTurnsWithoutRoom(Saboteur):
    async def take(self, run: str, *values: Any, **options: Any) -> TakenTurn | None:
        taken = await self.good.take(run, *values, **options)
        turn = await self.good.turn(run)
        if self.per_share and taken is None and turn is not None:
            await self.good.move(run, turn, replace(turn, due=500.0))
        return taken


class ForgetsLooksWithoutRoom(Saboteur):
    async def begin(self, run: str, *values: Any, **options: Any) -> int | None:
        begun = await self.good.begin(run, *values, **options)
        if begun is None:
            await self.good.looked(run, math.inf, now=0.0)
        return begun


class RousesTurnsWithoutRoom(Saboteur):
    async def take(self, run: str, *values: Any, **options: Any) -> TakenTurn | None:
        taken = await self.good.take(run, *values, **options)
        turn = await self.good.turn(run)
        if self.per_share and taken is None and turn is not None:
            await self.good.move(run, turn, replace(turn, due=options["now"]))
        return taken


class CountsWhatNoWorkerHas(Saboteur):
    async def begin(self, *values: Any, **options: Any) -> int | None:
        return await self.good.begin(*values, **{"works": True, **options})


class ForgetsTheShare(Saboteur):
    async def begin(self, *values: Any, **options: Any) -> int | None:
        return await self.good.begin(*values, **{**options, "share": ""})


class FindsTurnsOfNoWorker(Saboteur):
    async def overdue(
        self, now: float, limit: int, *, is_running: bool = False
    ) -> Sequence[tuple[str, TurnRecord]]:
        return await self.good.overdue(now, limit)


class TakesTheLastLook(Saboteur):
    async def look(self, run: str, at: float) -> None:
        await self.good.claim(1e9, 1e9, 9)
        await self.good.look(run, at)


class EndsWithoutALook(Saboteur):
    async def append_all(self, new: Sequence[NewEvents], *, at: float) -> None:
        await self.good.append_all([replace(each, look_at=None) for each in new], at=at)


class IsDoneWithWhatIsDue(Saboteur):
    async def looked(self, run: str, at: float, *, now: float) -> None:
        await self.good.looked(run, at, now=0.0)


class MovesWhateverIsThere(Saboteur):
    """Accepts a record that differs from the stored turn in one column."""

    column = ""

    async def move(self, run: str, turn: TurnRecord, *values: Any, **options: Any) -> bool:
        if found := await self.good.turn(run):
            turn = replace(turn, **{self.column: getattr(found, self.column)})
        return await self.good.move(run, turn, *values, **options)


def moves_whatever(column: str) -> type[MovesWhateverIsThere]:
    return type(f"MovesWhatever_{column}", (MovesWhateverIsThere,), {"column": column})


class Forgets(Saboteur):
    """Does not store one column when a turn changes."""

    column = ""

    async def move(self, run: str, turn: TurnRecord, to: Any, **options: Any) -> bool:
        if to is not None:
            to = replace(to, **{self.column: getattr(turn, self.column)})
        return await self.good.move(run, turn, to, **options)


def forgets(column: str) -> type[Forgets]:
    return type(f"Forgets_{column}", (Forgets,), {"column": column})


class MovesBeforeItsTime(Saboteur):
    async def move(self, run: str, *values: Any, **_: Any) -> bool:
        return await self.good.move(run, *values)


class ForgetsWhereALongRunHasBegun(Saboteur):
    async def take(self, run: str, *values: Any, **options: Any) -> TakenTurn | None:
        taken = await self.good.take(run, *values, **options)
        is_long = taken is not None and taken.last > 40_000
        return replace(taken, begun=None) if taken and is_long else taken


class TakesForAnyVersion(Saboteur):
    async def take(self, run: str, *values: Any, **options: Any) -> TakenTurn | None:
        turn = await self.good.turn(run)
        if turn and turn.state is TurnState.READY:
            options["version"] = None
        return await self.good.take(run, *values, **options)


class TakesAtAnyTime(Saboteur):
    async def take(self, run: str, *values: Any, **options: Any) -> TakenTurn | None:
        return await self.good.take(run, *values, **{**options, "now": 1e9})


class RenewsForAnyOwner(Saboteur):
    async def renew(self, run: str, owner: str, until: float) -> bool:
        turn = await self.good.turn(run)
        return await self.good.renew(run, turn.owner if turn else owner, until)


class ReleasesForAnyOwner(Saboteur):
    async def release(self, run: str, owner: str) -> None:
        for name in (owner, "a", "b"):
            await self.good.release(run, name)


class ShortensOpenRuns(Follower):
    async def start(self, run: str, after: At) -> At:
        return max(_number(after), await self.good.last(run) - 40_000)


class LetsAnyoneReportTheEnd(Saboteur):
    """Does not check the lease when events end the turn."""

    async def append_all(self, new: Sequence[NewEvents], *, at: float) -> None:
        for each in new:
            turn = await self.good.turn(each.run)
            is_others = each.ends and not (turn and turn.owner == each.owner)
            unfenced = replace(each, owner=None, ends=False) if is_others else each
            await self.good.append_all([unfenced], at=at)


class LetsAnyoneEndTheTurn(Saboteur):
    async def append_all(self, new: Sequence[NewEvents], *, at: float) -> None:
        for each in new:
            turn = await self.good.turn(each.run)
            owner = turn.owner if turn and each.ends else each.owner
            await self.good.append_all([replace(each, owner=owner)], at=at)


class AddsUnderAnyLease(Saboteur):
    """Does not check the lease when events continue the turn."""

    async def append_all(self, new: Sequence[NewEvents], *, at: float) -> None:
        unfenced = [each if each.ends else replace(each, owner=None) for each in new]
        await self.good.append_all(unfenced, at=at)


class ChecksTheLeaseBefore(Saboteur):
    """Checks the lease, and adds the events in a later statement, when the lease may have changed."""

    async def append_all(self, new: Sequence[NewEvents], *, at: float) -> None:
        turn = await self.good.turn("r")
        held = [replace(each, owner=None) for each in new if turn and turn.owner == each.owner]
        for _ in range(20):
            await self.good.last("r")
        await self.good.append_all(held, at=at)


class QueuesBehindAnyTurn(Saboteur):
    async def queue(self, run: str, *values: Any) -> bool:
        if turn := await self.good.turn(run):
            waiting = replace(turn, state=TurnState.WAITING)
            await self.good.move(run, turn, waiting)
            await self.good.queue(run, *values)
            await self.good.move(run, waiting, turn)
        return turn is not None


class QueuesSeveral(Saboteur):
    async def queue(self, run: str, *values: Any) -> bool:
        is_queued = await self.good.queue(run, *values)
        return is_queued or await self.good.queued(run) is not None


class BeginsBeforeTheQueue(Saboteur):
    async def begin(self, run: str, *values: Any, **options: Any) -> int | None:
        await self.good.looked(run, math.inf, now=0.0)
        return await self.good.begin(run, *values, **options)


class QueuesForEver(Saboteur):
    seen: Any = None

    async def queued(self, run: str) -> Any:
        self.seen = await self.good.queued(run) or self.seen
        return self.seen


class FindsWhatIsNotDue(Saboteur):
    async def overdue(self, now: float, *values: Any, **options: Any) -> Any:
        return await self.good.overdue(now + 100, *values, **options)


class WorksWhenClosed(Saboteur):
    async def close(self) -> None:
        pass


COLUMNS = ("id", "state", "owner", "process", "attempt", "version", "wakes_at")

SABOTEURS: list[tuple[type[Saboteur], RunEventCheck]] = [
    (NumbersFromZero, suite.numbers_count_from_one_without_gaps),
    (HasOneRun, suite.numbers_count_from_one_without_gaps),
    (AppendsOneByOne, suite.simultaneous_writers_get_different_numbers),
    (AppendsToTheFirstRunOnly, suite.one_operation_appends_to_several_runs),
    (ReleasesNothingOfSeveral, suite.one_operation_appends_to_several_runs),
    (CutsAtNul, suite.any_event_is_stored),
    (RepeatsTheLast, suite.a_reader_gets_exactly_the_events_it_has_missed),
    (DropsForTheSlow, suite.a_slow_reader_delays_no_one),
    (HoldsEverything, suite.a_slow_reader_delays_no_one),
    (TakesUnknownNumbersForTheEnd, suite.a_reader_after_an_unknown_event_is_refused),
    (DoesNotReportGaps, suite.pruning_deletes_events_of_old_runs),
    (TrustsNumbers, suite.an_id_identifies_its_event_after_a_loss),
    (ProvesTheEventAlone, suite.an_id_identifies_its_event_after_a_loss),
    (ForgetsTheMarkOfWhatIsDeleted, suite.pruning_deletes_events_of_old_runs),
    (FindsTheLast, suite.a_key_finds_the_first_of_its_events),
    (PrunesWithoutLimit, suite.pruning_deletes_events_of_old_runs),
    (BeginsOverATurn, turns.a_turn_begins_once),
    (BeginsAgain, turns.a_turn_begins_once),
    (MovesBeforeItsTime, turns.a_turn_changes_only_from_its_read_state),
    *((moves_whatever(each), turns.a_turn_changes_only_from_its_read_state) for each in COLUMNS),
    *((forgets(each), turns.a_turn_changes_only_from_its_read_state) for each in (*COLUMNS, "due")),
    (TakesForAnyVersion, turns.a_worker_takes_a_waiting_turn),
    (TakesAtAnyTime, turns.a_worker_takes_a_waiting_turn),
    (ForgetsWhereALongRunHasBegun, turns.a_taken_turn_has_its_events),
    (ShortensOpenRuns, turns.a_taken_turn_has_its_events),
    (RenewsForAnyOwner, turns.a_lease_on_a_turn_belongs_to_its_owner),
    (ReleasesForAnyOwner, turns.a_lease_on_a_turn_belongs_to_its_owner),
    (ReleasesNothingOfSeveral, turns.the_last_events_end_the_turn),
    (LetsAnyoneReportTheEnd, turns.the_last_events_end_the_turn),
    (LetsAnyoneEndTheTurn, turns.the_last_events_end_the_turn),
    (AddsUnderAnyLease, turns.only_the_owner_of_the_lease_adds_events),
    (ChecksTheLeaseBefore, turns.a_lease_that_passes_on_stops_appends_in_flight),
    (QueuesBehindAnyTurn, turns.a_turn_is_queued_behind_a_waiting_one),
    (QueuesSeveral, turns.a_turn_is_queued_behind_a_waiting_one),
    (BeginsBeforeTheQueue, turns.a_turn_is_queued_behind_a_waiting_one),
    (QueuesForEver, turns.a_turn_is_queued_behind_a_waiting_one),
    (BeginsWithoutALook, turns.a_look_is_due_once_no_turn_is_unfinished),
    (ClaimsEarly, turns.a_look_is_due_once_no_turn_is_unfinished),
    (ClaimsAgain, turns.a_look_is_due_once_no_turn_is_unfinished),
    (ClaimsWithoutLimit, turns.a_look_is_due_once_no_turn_is_unfinished),
    (TakesTheLastLook, turns.a_look_is_due_once_no_turn_is_unfinished),
    (EndsWithoutALook, turns.a_look_is_due_once_no_turn_is_unfinished),
    (IsDoneWithWhatIsDue, turns.a_look_without_result_is_over),
    (TakesWithoutALook, turns.a_look_without_result_is_over),
    (FindsWhatIsNotDue, turns.due_turns_are_found),
    (FindsTurnsOfNoWorker, turns.due_turns_are_found),
    (ClaimsEarly, turns.due_turns_are_claimed),
    (ClaimsAgain, turns.due_turns_are_claimed),
    (ClaimsWithoutLimit, turns.due_turns_are_claimed),
    (ClaimsForAnyVersion, turns.due_turns_are_claimed),
    (ClaimsWhatRuns, turns.due_turns_are_claimed),
    (PutsOffItsLook, turns.due_turns_are_claimed),
    (ClaimsForAnyShare, turns.a_share_has_a_limit_of_running_turns),
    (TakesForAnyShare, turns.a_share_has_a_limit_of_running_turns),
    (BeginsForAnyShare, turns.a_share_has_a_limit_of_running_turns),
    (CountsWhatNoWorkerHas, turns.a_share_has_a_limit_of_running_turns),
    (ForgetsTheShare, turns.a_share_has_a_limit_of_running_turns),
    (PutsOffTurnsWithoutRoom, turns.a_share_has_a_limit_of_running_turns),
    (ForgetsLooksWithoutRoom, turns.a_share_has_a_limit_of_running_turns),
    (RousesTurnsWithoutRoom, turns.a_turn_of_a_full_share_keeps_its_due_time),
    (WorksWhenClosed, suite.closing_ends_readers),
]


@pytest.mark.parametrize(("saboteur", "check"), SABOTEURS)
async def test_the_suite_finds_a_broken_promise(
    saboteur: type[Saboteur], check: RunEventCheck, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite, "PATIENCE", 0.2)  # short, since the awaited event never comes
    await assert_found(
        saboteur,
        check,
        message="expected|unhandled errors",
        raised=(AssertionError, ExceptionGroup),
    )

    assert check in RUN_EVENT_CHECKS

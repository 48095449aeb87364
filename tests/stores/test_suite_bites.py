"""The published suite finds stores that break a promise: each saboteur breaks one."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from anabranch._durable.store import CallRecord, CallStore, LeaseRecord, OpenedRound, RoundRecord
from anabranch.stores import open_store
from anabranch.testing.suites import CALL_STORE_CHECKS, CallStoreCheck
from anabranch.testing.suites import _call_fence_checks as fences
from anabranch.testing.suites import _call_listing_checks as listing
from anabranch.testing.suites import _call_round_checks as rounds
from anabranch.testing.suites import _call_store_checks as suite


class Saboteur:
    """Passes everything on to a good store; subclasses get something wrong."""

    def __init__(self) -> None:
        self.good: CallStore = open_store("memory:")

    def __getattr__(self, method: str) -> Callable[..., Awaitable[Any]]:
        return getattr(self.good, method)  # type: ignore[no-any-return]


class ForgetsWhatIsThere(Saboteur):
    async def begin(self, call: CallRecord) -> CallRecord:
        await self.good.begin(call)
        return call


class TakesEntriesOfUnknownCalls(Saboteur):
    async def record(
        self, call_id: str, number: int, entries: Mapping[str, str]
    ) -> Mapping[str, str]:
        if await self.good.find(call_id) is None:
            return entries
        return await self.good.record(call_id, number, entries)


class ReturnsTheLastText(Saboteur):
    async def record(
        self, call_id: str, number: int, entries: Mapping[str, str]
    ) -> Mapping[str, str]:
        await self.good.record(call_id, number, entries)
        return entries


class RecordsOneByOne(Saboteur):
    async def record(self, call_id: str, number: int, entries: Mapping[str, str]) -> dict[str, str]:
        stored: dict[str, str] = {}
        for step_id, text in entries.items():
            stored |= await self.good.record(call_id, number, {step_id: text})
        return stored


class SortsEntries(Saboteur):
    async def entries(self, call_id: str, number: int) -> dict[str, str]:
        return dict(sorted((await self.good.entries(call_id, number)).items()))


class CutsAtNul(Saboteur):
    async def entries(self, call_id: str, number: int) -> dict[str, str]:
        found = await self.good.entries(call_id, number)
        return {step_id: text.partition("\x00")[0] for step_id, text in found.items()}


class LeasesToEveryOwner(Saboteur):
    async def lease(self, call_id: str, owner: str, now: float, until: float) -> bool:
        await self.good.lease(call_id, owner, now, until)
        return True


class NeverEndsALease(Saboteur):
    async def lease(self, call_id: str, owner: str, now: float, until: float) -> bool:
        return await self.good.lease(call_id, owner, 0.0, 1e12)


class BelievesAnyClock(Saboteur):
    async def lease(self, call_id: str, owner: str, now: float, until: float) -> bool:
        return await self.good.lease(call_id, owner, now, max(until, 1e6))


class ReleasesForAnyOwner(Saboteur):
    async def release(self, call_id: str, owner: str) -> None:
        for name in ("a", "b"):
            await self.good.release(call_id, name)


class OpensWithoutALease(Saboteur):
    async def open_round(
        self, call_id: str, number: int, owner: str, now: float, until: float, **new: Any
    ) -> OpenedRound | None:
        opened = await self.good.open_round(call_id, number, owner, now, until, **new)
        await self.good.release(call_id, owner)
        return opened


class OpensWithEntriesOfAllRounds(Saboteur):
    async def open_round(
        self, call_id: str, number: int, owner: str, now: float, until: float, **new: Any
    ) -> OpenedRound | None:
        opened = await self.good.open_round(call_id, number, owner, now, until, **new)
        before = await self.good.entries(call_id, number - 1)
        return opened and replace(opened, entries={**before, **opened.entries})


class BeginsAgain(Saboteur):
    async def open_round(
        self, call_id: str, number: int, owner: str, now: float, until: float, **new: Any
    ) -> OpenedRound | None:
        opened = await self.good.open_round(call_id, number, owner, now, until, **new)
        return opened and replace(opened, call=new.get("new") or opened.call)


class DoesNotReleaseTheLease(Saboteur):
    async def end_round(self, call_id: str, record: RoundRecord, **options: Any) -> RoundRecord:
        del options["release"]
        return await self.good.end_round(call_id, record, **options)


class UpdatesWithTheSecondEnd(Saboteur):
    async def end_round(self, call_id: str, record: RoundRecord, **options: Any) -> RoundRecord:
        first = await self.good.end_round(call_id, record, **options)
        status = str(options.get("status", "open"))
        if status != "open":
            await self.good.finish(call_id, status)
        return first


class FinishesTwice(Saboteur):
    async def finish(self, call_id: str, status: str) -> bool:
        return await self.good.finish(call_id, status) or bool(await self.good.find(call_id))


class RenewsByTaking(Saboteur):
    async def renew(self, call_id: str, owner: str, until: float) -> bool:
        return await self.good.lease(call_id, owner, 115.0, until)


class FinishesForEveryOwner(Saboteur):
    async def finish(
        self, call_id: str, status: str, *, owner: str | None = None, **changes: Any
    ) -> bool:
        return await self.good.finish(call_id, status, **changes)


class EndsRoundsForEveryOwner(Saboteur):
    async def end_round(
        self, call_id: str, record: RoundRecord, *, release: str = "", **options: Any
    ) -> RoundRecord:
        await self.good.release(call_id, release)
        return await self.good.end_round(call_id, record, **options)


class RecordsForEveryOwner(Saboteur):
    async def record(
        self, call_id: str, number: int, entries: Mapping[str, str], *, owner: str | None = None
    ) -> Mapping[str, str]:
        return await self.good.record(call_id, number, entries)


class TakesTheLatestRound(Saboteur):
    latest: RoundRecord | None = None

    async def end_round(self, call_id: str, record: RoundRecord, **options: Any) -> RoundRecord:
        self.latest = record
        return await self.good.end_round(call_id, record, **options)

    async def last_round(self, call_id: str) -> RoundRecord | None:
        return self.latest


class FindsTheLastExpiredFirst(Saboteur):
    async def expired(self, now: float, limit: int) -> list[CallRecord]:
        return (await self.good.expired(now, 1000))[::-1][:limit]


class PrunesWithoutLimit(Saboteur):
    async def prune(self, before: float, limit: int) -> int:
        return await self.good.prune(before, 1000)


class ListsTheFirstBegunFirst(Saboteur):
    async def calls(self, limit: int, **chosen: Any) -> list[CallRecord]:
        return (await self.good.calls(limit, **chosen))[::-1]


class ListsOnePageOnly(Saboteur):
    async def calls(
        self, limit: int, *, after: CallRecord | None = None, **chosen: Any
    ) -> list[CallRecord]:
        return [] if after else await self.good.calls(limit, **chosen)


class ListsEveryStatus(Saboteur):
    async def calls(
        self, limit: int, *, status: str | None = None, **chosen: Any
    ) -> list[CallRecord]:
        return await self.good.calls(limit, **chosen)


class ListsWhateverIsRecorded(Saboteur):
    async def calls(self, limit: int, *, recorded: str = "", **chosen: Any) -> list[CallRecord]:
        return await self.good.calls(limit, **chosen)


class CountsCallsThatAreOver(Saboteur):
    async def open_calls(self) -> tuple[int, float | None, float | None]:
        found = await self.good.calls(1000)
        return len(found), min((each.started for each in found), default=None), None


class AsksOnWhileItWorks(Saboteur):
    async def open_calls(self) -> tuple[int, float | None, float | None]:
        found = [each.asked for each in await self.good.calls(9, status="open")]
        first = min((each for each in found if each is not None), default=None)
        return (*(await self.good.open_calls())[:2], first)


class KnowsNoLease(Saboteur):
    async def leased(self, call_id: str) -> LeaseRecord | None:
        return None


class ForgetsNotes(Saboteur):
    async def last_round(self, call_id: str) -> RoundRecord | None:
        found = await self.good.last_round(call_id)
        return found and replace(found, notes="")


class WorksWhenClosed(Saboteur):
    async def close(self) -> None:
        pass


SABOTEURS: list[tuple[type[Saboteur], CallStoreCheck]] = [
    (ForgetsWhatIsThere, suite.begin_again_changes_nothing),
    (TakesEntriesOfUnknownCalls, suite.writing_to_an_unknown_call_is_refused),
    (ReturnsTheLastText, suite.the_first_text_of_a_step_stays),
    (RecordsOneByOne, suite.a_record_that_fails_leaves_nothing),
    (SortsEntries, suite.entries_come_in_the_order_of_recording),
    (CutsAtNul, suite.any_text_is_stored),
    (LeasesToEveryOwner, rounds.a_lease_has_one_owner),
    (NeverEndsALease, rounds.a_lease_ends_by_itself),
    (BelievesAnyClock, rounds.a_lease_from_a_clock_that_was_ahead_is_shortened),
    (ReleasesForAnyOwner, rounds.a_lease_has_one_owner),
    (OpensWithoutALease, rounds.opening_a_round_takes_the_lease),
    (OpensWithEntriesOfAllRounds, rounds.opening_a_round_returns_what_is_recorded_of_it),
    (BeginsAgain, rounds.opening_a_round_may_begin_its_call),
    (DoesNotReleaseTheLease, rounds.the_end_of_a_round_releases_the_lease),
    (UpdatesWithTheSecondEnd, rounds.the_first_end_of_a_round_stays),
    (FinishesTwice, rounds.only_an_open_call_can_be_finished),
    (RenewsByTaking, fences.only_who_has_a_lease_renews_it),
    (FinishesForEveryOwner, fences.only_who_has_the_lease_finishes_a_call_in_its_name),
    (EndsRoundsForEveryOwner, fences.only_who_has_the_lease_ends_a_round_in_its_name),
    (RecordsForEveryOwner, fences.only_who_has_the_lease_records_in_its_name),
    (TakesTheLatestRound, rounds.rounds_are_found_by_number),
    (FindsTheLastExpiredFirst, rounds.the_longest_overdue_call_comes_first),
    (PrunesWithoutLimit, rounds.pruning_stops_at_its_limit),
    (ListsTheFirstBegunFirst, listing.the_last_begun_call_comes_first),
    (ListsOnePageOnly, listing.the_last_begun_call_comes_first),
    (ListsEveryStatus, listing.calls_are_chosen),
    (CountsCallsThatAreOver, listing.open_calls_are_counted),
    (AsksOnWhileItWorks, listing.the_longest_waiting_question_is_known),
    (KnowsNoLease, listing.a_lease_can_be_looked_at),
    (ForgetsNotes, listing.notes_are_stored_with_their_round),
    (WorksWhenClosed, suite.a_closed_store_refuses),
]


@pytest.mark.parametrize(("saboteur", "check"), SABOTEURS)
async def test_the_suite_finds_a_broken_promise(
    saboteur: type[Saboteur], check: CallStoreCheck
) -> None:
    stores: list[Saboteur] = []

    def open_it() -> CallStore:
        stores.append(saboteur())
        return cast("CallStore", stores[-1])

    with pytest.raises(AssertionError, match=r"expected|was recorded"):
        await check(open_it)

    assert check in CALL_STORE_CHECKS
    for store in stores:
        await store.good.close()

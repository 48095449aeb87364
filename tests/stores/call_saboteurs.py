"""Saboteurs: stores of calls that each break one promise of a good store."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import anyio

from anabranch._durable import (
    OPEN,
    AnswerRecord,
    CallEvent,
    CallRecord,
    CallState,
    OpenedRound,
    RoundRecord,
)
from anabranch.stores import CallStore, open_store
from tests.stores.sabotage import Forwarding

Texts: TypeAlias = Mapping[str, str]
Opened: TypeAlias = OpenedRound | None


class Saboteur(Forwarding):
    def __init__(self, url: str = "memory:") -> None:
        self.good: CallStore = open_store(url)

    async def owner(self, call_id: str) -> str:
        """Return the owner of the lease on a call, or an empty text."""
        found = await self.good.find(call_id)
        return "" if found is None or found.lease is None else found.lease.owner


# -- calls and entries ---------------------------------------------------------------------------


class LosesCalls(Saboteur):
    async def find(self, call_id: str) -> CallRecord | None:
        return None


class Forgets(Saboteur):
    """Loses one column of every call."""

    column: str

    async def find(self, call_id: str) -> CallRecord | None:
        found, lost = await self.good.find(call_id), dict[str, Any]({self.column: ""})
        return found and replace(found, **lost)


def forgets(column: str) -> type[Forgets]:
    return type(f"Forgets_{column}", (Forgets,), {"column": column})


class SharesNothing(Saboteur):
    def __init__(self, url: str = "memory:") -> None:
        del url
        super().__init__()


class ForgetsWhatIsThere(Saboteur):
    async def begin(self, call: CallRecord, *, after: RoundRecord | None = None) -> CallRecord:
        await self.good.begin(call, after=after)
        return call


class BeginsWithoutTheRoundBefore(Saboteur):
    async def begin(self, call: CallRecord, *, after: RoundRecord | None = None) -> CallRecord:
        return await self.good.begin(call)


class InventsCalls(Saboteur):
    async def move(self, call_id: str, event: CallEvent, **how: Any) -> bool:
        return await self.good.find(call_id) is None or await self.good.move(call_id, event, **how)


class TakesEntriesOfUnknownCalls(Saboteur):
    async def record(self, call_id: str, number: int, entries: Texts, **more: str) -> Any:
        if await self.good.find(call_id) is None:
            return entries
        return await self.good.record(call_id, number, entries, **more)


class ReturnsTheLastText(Saboteur):
    async def record(self, call_id: str, number: int, entries: Texts, **more: str) -> Any:
        await self.good.record(call_id, number, entries, **more)
        return entries


class ReturnsNewTextsAlone(Saboteur):
    async def record(self, call_id: str, number: int, entries: Texts, **more: str) -> Any:
        before = await self.good.entries(call_id, number)
        found = await self.good.record(call_id, number, entries, **more)
        return {step: text for step, text in found.items() if step not in before}


class RecordsOneByOne(Saboteur):
    async def record(self, call_id: str, number: int, entries: Texts, **more: str) -> Any:
        stored: dict[str, str] = {}
        for step_id, text in entries.items():
            stored |= await self.good.record(call_id, number, {step_id: text}, **more)
        return stored


class IsCancelledHalfway(Saboteur):
    async def record(self, call_id: str, number: int, entries: Texts, **more: str) -> Any:
        if len(entries) == 1:
            return await self.good.record(call_id, number, entries, **more)
        with anyio.CancelScope(shield=True):
            await self.good.record(call_id, number, dict([*entries.items()][:1]), **more)
        await anyio.sleep_forever()
        raise AssertionError


class RecordsLater(Saboteur):
    async def record(self, call_id: str, number: int, entries: Texts, **more: str) -> Any:
        return dict(entries)


class RecordsWhatIsOpen(Saboteur):
    async def record(self, call_id: str, number: int, entries: Texts, **more: str) -> Any:
        found = await self.good.find(call_id)
        if found is not None and not found.state.is_open:
            return {}
        return await self.good.record(call_id, number, entries, **more)


class SortsEntries(Saboteur):
    async def entries(self, call_id: str, number: int) -> dict[str, str]:
        return dict(sorted((await self.good.entries(call_id, number)).items()))


class CutsAtNul(Saboteur):
    async def entries(self, call_id: str, number: int) -> dict[str, str]:
        found = await self.good.entries(call_id, number)
        return {step_id: text.partition("\x00")[0] for step_id, text in found.items()}


class WorksWhenClosed(Saboteur):
    async def close(self) -> None:
        pass


# -- leases and states ---------------------------------------------------------------------------


class KnowsNoLease(Saboteur):
    async def find(self, call_id: str) -> CallRecord | None:
        found = await self.good.find(call_id)
        return found and replace(found, lease=None)


class KnowsNoProcess(Saboteur):
    async def find(self, call_id: str) -> CallRecord | None:
        found = await self.good.find(call_id)
        lease = None if found is None or found.lease is None else replace(found.lease, process="")
        return found and replace(found, lease=lease)


class RenewsByTaking(Saboteur):
    async def renew(self, call_id: str, owner: str, until: float) -> bool:
        if await self.good.renew(call_id, owner, until):
            return True
        opened = await self.good.open_round(call_id, 99, owner, 125.0, until)
        return opened is not None


class ReleasesForAnyOwner(Saboteur):
    async def release(self, call_id: str, owner: str) -> None:
        await self.good.release(call_id, await self.owner(call_id))


class MovesWithoutTheTable(Saboteur):
    async def move(self, call_id: str, event: CallEvent, *, owner: str, **more: Any) -> bool:
        if event == CallEvent.STOP and await self.owner(call_id) == owner:
            await self.good.take_to_undo(call_id, owner, 0.0, 0.0, is_due=False)
        return await self.good.move(call_id, event, owner=owner, **more)


class MovesForEveryOwner(Saboteur):
    async def move(self, call_id: str, event: CallEvent, *, owner: str, **more: Any) -> bool:
        has = await self.owner(call_id)
        return await self.good.move(call_id, event, owner=has, **more)


class AdoptsForEveryOwner(Saboteur):
    async def adopt(self, call_id: str, version: str, owner: str) -> bool:
        return await self.good.adopt(call_id, version, await self.owner(call_id))


class FailsForEveryOwner(Saboteur):
    async def fail(self, call_id: str, error: str, owner: str) -> bool:
        return await self.good.fail(call_id, error, await self.owner(call_id))


class RetriesUnderItsLease(Saboteur):
    async def move(self, call_id: str, event: CallEvent, *, owner: str, **more: Any) -> bool:
        if event == CallEvent.RETRY:
            return await self.owner(call_id) == owner
        return await self.good.move(call_id, event, owner=owner, **more)


class ReturnsTheLastFailure(Saboteur):
    def __init__(self, url: str = "memory:") -> None:
        super().__init__(url)
        self.errors: dict[str, str] = {}

    async def fail(self, call_id: str, error: str, owner: str) -> bool:
        has = await self.good.fail(call_id, error, owner)
        if has:
            self.errors[call_id] = error
        return has

    async def open_round(self, call_id: str, *where: Any, **options: Any) -> OpenedRound | None:
        found = await self.good.open_round(call_id, *where, **options)
        failure = self.errors.get(call_id)
        return found and replace(found, call=replace(found.call, failure=failure))


class FailsWhatIsUndone(Saboteur):
    async def find(self, call_id: str) -> CallRecord | None:
        found = await self.good.find(call_id)
        is_undoing = found is not None and found.state == CallState.UNDOING
        return replace(found, failure="why") if found and is_undoing else found


class MixesWhatIsUndone(Saboteur):
    def __init__(self, url: str = "memory:") -> None:
        super().__init__(url)
        self.steps: set[str] = set()

    async def undone(self, call_id: str, step_id: str) -> None:
        self.steps.add(step_id)
        await self.good.undone(call_id, step_id)

    async def undone_steps(self, call_id: str) -> frozenset[str]:
        return frozenset(self.steps)


class UndoesWhatHasTime(Saboteur):
    async def take_to_undo(self, *how: Any, is_due: bool = True) -> CallRecord | None:
        return await self.good.take_to_undo(*how, is_due=False)


class StopsOnlyWhatIsDue(Saboteur):
    async def take_to_undo(self, *how: Any, is_due: bool = True) -> CallRecord | None:
        return await self.good.take_to_undo(*how)


class ForgetsThatItIsStopped(Saboteur):
    async def take_to_undo(self, *how: Any, is_due: bool = True) -> CallRecord | None:
        found = await self.good.take_to_undo(*how, is_due=is_due)
        return found and replace(found, is_stopped=not is_due)


# -- rounds --------------------------------------------------------------------------------------


class LeasesToEveryOwner(Saboteur):
    async def open_round(self, call_id: str, number: int, *lease: Any, **options: Any) -> Opened:
        await self.good.release(call_id, await self.owner(call_id))
        return await self.good.open_round(call_id, number, *lease, **options)


class NeverEndsALease(Saboteur):
    async def open_round(self, call_id: str, number: int, *lease: Any, **options: Any) -> Opened:
        return await self.good.open_round(call_id, number, lease[0], 0.0, 1e12, **options)


class BelievesAnyClock(Saboteur):
    async def open_round(self, call_id: str, number: int, *lease: Any, **options: Any) -> Opened:
        owner, now, until = lease
        return await self.good.open_round(call_id, number, owner, now, max(until, 1e6), **options)


class OpensWithoutALease(Saboteur):
    async def open_round(self, call_id: str, number: int, *lease: Any, **options: Any) -> Opened:
        opened = await self.good.open_round(call_id, number, *lease, **options)
        await self.good.release(call_id, lease[0])
        return opened


class OpensWithEntriesOfAllRounds(Saboteur):
    async def open_round(self, call_id: str, number: int, *lease: Any, **options: Any) -> Opened:
        opened = await self.good.open_round(call_id, number, *lease, **options)
        before = await self.good.entries(call_id, number - 1)
        return opened and replace(opened, entries={**before, **opened.entries})


class OpensWithoutWhatIsUndone(Saboteur):
    async def open_round(self, call_id: str, number: int, *lease: Any, **options: Any) -> Opened:
        opened = await self.good.open_round(call_id, number, *lease, **options)
        return opened and replace(opened, undone=frozenset())


class OpensWhatHasEnded(Saboteur):
    async def open_round(self, call_id: str, number: int, *lease: Any, **options: Any) -> Opened:
        opened = await self.good.open_round(call_id, number, *lease, **options)
        if opened is not None and opened.ended is not None:
            await self.good.renew(call_id, lease[0], lease[2])
        return opened


class HidesTheEndOfARound(Saboteur):
    async def open_round(self, call_id: str, number: int, *lease: Any, **options: Any) -> Opened:
        opened = await self.good.open_round(call_id, number, *lease, **options)
        return opened and replace(opened, ended=None)


class OpensCallsThatAreOver(Saboteur):
    async def open_round(self, call_id: str, number: int, *lease: Any, **options: Any) -> Opened:
        opened = await self.good.open_round(call_id, number, *lease, **options)
        return opened and replace(opened, is_leased=opened.ended is None)


class BeginsAgain(Saboteur):
    async def open_round(self, call_id: str, number: int, *lease: Any, **options: Any) -> Opened:
        opened = await self.good.open_round(call_id, number, *lease, **options)
        return opened and replace(opened, call=options.get("new") or opened.call)


class EndsRoundsForEveryOwner(Saboteur):
    async def end_round(
        self, call_id: str, *ending: Any, owner: str, deadline: float
    ) -> RoundRecord:
        has = await self.owner(call_id) or owner
        return await self.good.end_round(call_id, *ending, owner=has, deadline=deadline)


class UpdatesWithTheSecondEnd(Saboteur):
    async def end_round(self, call_id: str, record: RoundRecord, *how: Any, **more: Any) -> Any:
        first = await self.good.end_round(call_id, record, *how, **more)
        if first != record:
            await self.good.answer(call_id, {}, by="", deadline=more["deadline"])
        return first


class DoesNotPostponeAtTheEnd(Saboteur):
    async def end_round(self, *ending: Any, **more: Any) -> RoundRecord:
        return await self.good.end_round(*ending, **more | {"deadline": 200.0})


class ForgetsSinceWhenItAsks(Saboteur):
    async def end_round(self, call_id: str, record: RoundRecord, *how: Any, **more: Any) -> Any:
        return await self.good.end_round(call_id, replace(record, asked=None), *how, **more)


class TakesTheLatestRound(Saboteur):
    latest: RoundRecord | None = None

    async def end_round(self, call_id: str, record: RoundRecord, *how: Any, **more: Any) -> Any:
        self.latest = record
        return await self.good.end_round(call_id, record, *how, **more)

    async def last_round(self, call_id: str) -> RoundRecord | None:
        return self.latest


class KeepsItsVersion(Saboteur):
    async def adopt(self, call_id: str, version: str, owner: str) -> bool:
        return await self.owner(call_id) == owner


# -- the inbox -----------------------------------------------------------------------------------


class HasOneInbox(Saboteur):
    async def answers(self, call_id: str) -> dict[str, AnswerRecord]:
        found: dict[str, AnswerRecord] = {}
        for each in await self.good.calls(10):
            found |= await self.good.answers(each.call_id)
        return found


class ReturnsTheLastAnswer(Saboteur):
    async def answer(self, call_id: str, answers: Texts, **more: Any) -> Any:
        found = await self.good.answer(call_id, answers, **more)
        return None if found is None else dict(answers)


class ForgetsWhoAnswers(Saboteur):
    async def answer(self, call_id: str, answers: Texts, **more: Any) -> Any:
        return await self.good.answer(call_id, answers, **more | {"by": "someone"})


class AnswersWhatIsOver(Saboteur):
    async def answer(self, call_id: str, answers: Texts, **more: Any) -> Any:
        return await self.good.answer(call_id, answers, **more) or dict(answers)


class AnswersWhatIsLate(Saboteur):
    async def answer(self, call_id: str, answers: Texts, *, now: float = 0.0, **more: Any) -> Any:
        return await self.good.answer(call_id, answers, **more)


class GivesNoTime(Saboteur):
    async def answer(self, call_id: str, answers: Texts, **more: Any) -> Any:
        return await self.good.answer(call_id, answers, **more | {"deadline": None})


class LeavesInboxes(Saboteur):
    def __init__(self, url: str = "memory:") -> None:
        super().__init__(url)
        self.inboxes: dict[str, dict[str, AnswerRecord]] = {}

    async def answer(self, call_id: str, answers: Texts, **more: Any) -> Any:
        found = await self.good.answer(call_id, answers, **more)
        self.inboxes[call_id] = await self.good.answers(call_id)
        return found

    async def answers(self, call_id: str) -> dict[str, AnswerRecord]:
        return self.inboxes.get(call_id, {})


class TakesWhateverIsThere(Saboteur):
    async def open_round(self, call_id: str, number: int, *lease: Any, **options: Any) -> Opened:
        options["asks"] = [*await self.good.answers(call_id)]
        return await self.good.open_round(call_id, number, *lease, **options)


class TakesOnlyWhatItIsGiven(Saboteur):
    async def open_round(self, call_id: str, number: int, *lease: Any, **options: Any) -> Opened:
        options["asks"] = []
        return await self.good.open_round(call_id, number, *lease, **options)


class TakesAnswersLate(Saboteur):
    async def open_round(self, call_id: str, number: int, *lease: Any, **options: Any) -> Opened:
        opened = await self.good.open_round(call_id, number, *lease, **options)
        there = await self.good.answers(call_id)
        late = {step: there[step].text for step in options.get("asks", ()) if step in there}
        return opened and replace(opened, answers={**opened.answers, **late})


class TakesOtherAnswers(Saboteur):
    async def open_round(self, call_id: str, number: int, *lease: Any, **options: Any) -> Opened:
        given: dict[str, str] = options.get("answers") or {}
        opened = await self.good.open_round(call_id, number, *lease, **options)
        if opened is None or opened.is_leased or opened.ended is not None:
            return opened
        options["answers"] = opened.answers
        again = await self.good.open_round(call_id, number, *lease, **options)
        return again and replace(again, answers={**opened.answers, **given})


class BindsToWhatWasEntered(Saboteur):
    async def open_round(self, call_id: str, number: int, *lease: Any, **options: Any) -> Opened:
        there = await self.good.answers(call_id)
        known = {step: each.text for step, each in there.items() if each.round == number}
        opened = await self.good.open_round(call_id, number, *lease, **options)
        is_other = bool(known) and known != (options.get("answers") or {})
        return opened and replace(opened, is_leased=opened.is_leased and not is_other)


class TakesWhatItIsGivenFirst(Saboteur):
    async def open_round(self, call_id: str, number: int, *lease: Any, **options: Any) -> Opened:
        given: dict[str, str] = options.get("answers") or {}
        opened = await self.good.open_round(call_id, number, *lease, **options)
        return opened and replace(opened, answers={**opened.answers, **given})


class TakesWhatAnotherHasTaken(Saboteur):
    async def open_round(self, call_id: str, number: int, *lease: Any, **options: Any) -> Opened:
        there = await self.good.answers(call_id)
        taken = {step: each.text for step, each in there.items() if each.round is not None}
        asked = {step: taken[step] for step in options.get("asks", ()) if step in taken}
        given: dict[str, str] = options.get("answers") or {}
        options["answers"] = {step: text for step, text in given.items() if step not in asked}
        opened = await self.good.open_round(call_id, number, *lease, **options)
        return opened and replace(opened, answers={**opened.answers, **asked})


class BeginsWithoutAnswers(Saboteur):
    async def open_round(self, call_id: str, number: int, *lease: Any, **options: Any) -> Opened:
        if options.get("new") is not None:
            options["answers"] = None
        return await self.good.open_round(call_id, number, *lease, **options)


# -- looking at calls ----------------------------------------------------------------------------


class FindsTheLastExpiredFirst(Saboteur):
    async def expired(self, now: float, limit: int) -> list[CallRecord]:
        return (await self.good.expired(now, 1000))[::-1][:limit]


class PrunesWithoutLimit(Saboteur):
    async def prune(self, before: float, limit: int) -> int:
        return await self.good.prune(before, 1000)


class HastensInAnyState(Saboteur):
    async def hasten(self, call_id: str, deadline: float, state: CallState) -> bool:
        del state
        found = await self.good.find(call_id)
        return found is not None and await self.good.hasten(call_id, deadline, found.state)


class KeepsAnswersThatCameToNothing(Saboteur):
    async def move(self, call_id: str, event: CallEvent, *, owner: str, **more: Any) -> bool:
        if event == CallEvent.LEAVE:
            await self.good.release(call_id, owner)
            return True
        return await self.good.move(call_id, event, owner=owner, **more)


class RecordsWhateverWasGiven(Saboteur):
    async def record(self, call_id: str, number: int, entries: Texts, **more: str) -> Any:
        return await self.good.record(call_id, number, entries)


class ListsTheFirstBegunFirst(Saboteur):
    async def calls(self, limit: int, **chosen: Any) -> list[CallRecord]:
        return (await self.good.calls(limit, **chosen))[::-1]


class ListsOnePageOnly(Saboteur):
    async def calls(
        self, limit: int, *, after: CallRecord | None = None, **chosen: Any
    ) -> list[CallRecord]:
        return [] if after else await self.good.calls(limit, **chosen)


class ListsEveryState(Saboteur):
    async def calls(self, limit: int, *, states: Any = None, **chosen: Any) -> list[CallRecord]:
        return await self.good.calls(limit, **chosen)


class ListsWhateverItBeginsWith(Saboteur):
    async def calls(self, limit: int, *, begins: str = "", **chosen: Any) -> list[CallRecord]:
        plain = begins.encode(errors="replace").decode().partition("\x00")[0]
        return await self.good.calls(limit, begins=plain, **chosen)


class CountsCallsThatAreOver(Saboteur):
    async def open_calls(self) -> tuple[int, float | None, float | None]:
        found = await self.good.calls(1000)
        return len(found), min((each.started for each in found), default=None), None


class AsksOnWhileItWorks(Saboteur):
    async def open_calls(self) -> tuple[int, float | None, float | None]:
        found = [each.asked for each in await self.good.calls(9, states=OPEN)]
        first = min((each for each in found if each is not None), default=None)
        return (*(await self.good.open_calls())[:2], first)


class ForgetsNotes(Saboteur):
    async def last_round(self, call_id: str) -> RoundRecord | None:
        found = await self.good.last_round(call_id)
        return found and replace(found, notes="")

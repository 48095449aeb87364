"""Checks of stores of run events: the leases on runs."""

from __future__ import annotations

import math
from dataclasses import replace

from anabranch.stores import NewEvents, TakenRun
from tests.suites.expectations import expect, no, opened, yes
from tests.suites.run_event_checks import (
    EVENT_CHECKS,
    OpenRunEvents,
    RunEventCheck,
    read_from,
    some,
)

MANY = 50_000
"""Events of one run: more than a store holds of those that have ended."""


async def a_lease_has_one_holder(open_store: OpenRunEvents) -> None:
    """Also of a run that has no events yet; it ends by itself, or when it is released."""
    async with opened(open_store) as store:
        expect(await store.holder("r", 100.0), None, "it is free")
        yes(await store.lease("r", "a", 100.0, 110.0), "it was free")
        no(await store.lease("r", "b", 105.0, 120.0), "it is held")
        expect(await store.holder("r", 105.0), "a", "by the first")
        yes(await store.lease("r", "a", 109.0, 120.0), "who may renew it")
        no(await store.lease("r", "b", 110.0, 115.0), "it lasts longer then")
        expect(await store.holder("r", 115.0), None, "but no longer than the other asked for")
        yes(await store.lease("r", "b", 115.0, 130.0), "it has ended")
        await store.release("r", "a")
        expect(await store.holder("r", 116.0), "b", "who does not hold it cannot release it")
        await store.release("r", "b")
        expect(await store.holder("r", 116.0), None, "who holds it can")
        expect(await store.last("r"), 0, "a lease is no event")
        yes(await store.lease("other", "a", 100.0, 110.0), "another run is another lease")


async def the_last_events_release_the_lease(open_store: OpenRunEvents) -> None:
    """As one: who has read them can take it. Another's lease stays."""
    async with opened(open_store) as store:
        yes(await store.lease("r", "a", 100.0, 110.0), "it was free")
        await store.append("r", some("a"), at=101.0)
        expect(await store.holder("r", 102.0), "a", "events alone release nothing")
        await store.append("r", some("c"), at=105.0, release="a")
        expect(await store.holder("r", 106.0), None, "it is released")
        yes(await store.lease("r", "b", 106.0, 116.0), "and free")


async def the_last_events_pass_the_lease_on(open_store: OpenRunEvents) -> None:
    """As one, to whom they name; from no one but its owner."""
    async with opened(open_store) as store:
        yes(await store.lease("r", "a", 100.0, 110.0), "it was free")
        ours = NewEvents("r", some("x"), release="a", successor=("b", 120.0))
        await store.append_all([ours, NewEvents("s", some("y"))], at=101.0)
        expect([await store.holder("r", at) for at in (119.0, 121.0)], ["b", None], "for its time")
        await store.append_all([ours], at=102.0)
        expect(await read_from(store, "r", 0, 1), [(1, b"x")], "once")
        expect(await store.last("r"), 1, "and nothing by who has not the lease")
        expect(await store.holder("s", 102.0), None, "another run has a lease of its own")


async def a_run_begins_once(open_store: OpenRunEvents) -> None:
    """With its lease, which must be free, or that of whom it is taken from; all or nothing."""
    async with opened(open_store) as store:
        begun = await store.begin("r", "a", 110.0, b"x", at=100.0, key="k")
        expect(begun, 1, "the number of the first event")
        expect(await store.holder("r", 109.0), "a", "it has the lease")
        again = await store.begin("r", "b", 130.0, b"y", at=120.0, key="other")
        expect(again, None, "a lease that was not released is not free")
        await store.append("r", some("z"), at=121.0, release="a")
        again = await store.begin("r", "b", 130.0, b"y", at=122.0, key="k")
        expect(again, None, "under the same key")
        expect(await store.holder("r", 0.0), None, "then nothing is taken")
        yes(await store.lease("r", "c", 100.0, 110.0), "it was free")
        for instead, number in ((None, None), ("d", None), ("c", 3), ("c", None)):
            took = await store.begin(
                "r", "b", 130.0, b"y", at=123.0, key=f"other {instead}", instead=instead
            )
            expect(took, number, f"instead of {instead!r}")
        expect(await store.holder("r", 129.0), "b", "it has the lease")
        expect(await read_from(store, "r", 0, 3), [(1, b"x"), (2, b"z"), (3, b"y")], "in order")
        expect(await store.find("r", "other c"), 3, "under its key")


async def an_open_run_stays_whole(open_store: OpenRunEvents) -> None:
    """From its first event on, however many follow: who takes it over goes on after them."""
    async with opened(open_store) as store:
        await store.append("r", some("before"), at=99.0)
        expect(await store.begin("r", "a", 110.0, b"x", at=100.0, key="k"), 2, "its first event")
        count, batch = 0, [b"."] * 1000
        while count < MANY:
            count += len(batch)
            await store.append_all([NewEvents("r", batch)], at=101.0)
        taken = await store.take("r", "a", "b", 120.0, "k")
        expect(taken, TakenRun(2, 2 + count), "all its events")
        expect(await read_from(store, "r", 1, 2), [(2, b"x"), (3, b".")], "which can be read")


async def only_who_holds_the_lease_reports_the_end(open_store: OpenRunEvents) -> None:
    """What comes from an owner before is not added; what is appended beside it to other runs is."""
    async with opened(open_store) as store:
        yes(await store.lease("r", "a", 100.0, 110.0), "it was free")
        expect(await store.append("r", some("x"), at=101.0, release="b"), 0, "another owner's end")
        expect(await store.holder("r", 102.0), "a", "the lease stays")
        late = [NewEvents("r", some("x"), release="b"), NewEvents("s", some("y"), key="k")]
        await store.append_all(late, at=103.0)
        expect([await store.last(run) for run in "rs"], [0, 1], "the other run goes on")
        expect(await store.append("r", some("z"), at=104.0, release="a"), 1, "the owner's end")
        expect(await store.append("r", some("x"), at=105.0, release="a"), 1, "once")
        expect(await store.append("none", some("x"), at=106.0, release="a"), 0, "no lease at all")
        expect(await read_from(store, "r", 0, 1), [(1, b"z")], "what was added")


async def only_who_holds_the_lease_adds_events_under_it(open_store: OpenRunEvents) -> None:
    """Events of an owner before, or of a run without a lease, are not added; the lease stays."""
    async with opened(open_store) as store:
        yes(await store.lease("r", "a", 100.0, 110.0), "it was free")
        ours = NewEvents("r", some("x"), key="k", lease="a")
        await store.append_all([ours, NewEvents("none", some("x"), lease="a")], at=120.0)
        expect([await store.last(run) for run in ("r", "none")], [1, 0], "the owner's, though late")
        expect(await store.holder("r", 0.0), "a", "the lease stays")
        yes(await store.take_over("r", "a", "b", 120.0, 130.0), "it has run out")
        await store.append_all([ours, NewEvents("s", some("y"))], at=121.0)
        expect([await store.last(run) for run in "rs"], [1, 1], "another owner's; the other run's")
        await store.release("r", "b")
        await store.append_all([replace(ours, lease="b")], at=122.0)
        expect(await store.last("r"), 1, "a lease that was released")


async def a_lease_passes_from_its_owner_to_another(open_store: OpenRunEvents) -> None:
    """When it has run out, or before, at the wish of its owner; from no one else."""
    async with opened(open_store) as store:
        no(await store.take_over("r", "a", "b", math.inf, 120.0), "there is no lease")
        yes(await store.lease("r", "a", 100.0, 110.0), "it was free")
        no(await store.take_over("r", "a", "b", 109.0, 120.0), "it has not run out")
        yes(await store.take_over("r", "a", "b", 110.0, 120.0), "it has")
        expect(await store.holder("r", 111.0), "b", "the other has it")
        no(await store.take_over("r", "a", "c", 130.0, 140.0), "it is not its lease any more")
        yes(await store.take_over("r", "b", "c", math.inf, 140.0), "every lease has run out then")
        expect(await store.holder("r", 130.0), "c", "and the third has it")
        no(await store.lease("r", "d", 0.0, 999.0), "what was not released is not free at 0")
        expect(await store.holder("r", 0.0), "c", "and has a holder")
        await store.release("r", "c")
        yes(await store.lease("r", "d", 0.0, 999.0), "what was released is free")


async def who_takes_a_lease_learns_where_the_events_are(open_store: OpenRunEvents) -> None:
    """As one with the lease, which its owner has, whatever its time."""
    async with opened(open_store) as store:
        expect(await store.take("r", "a", "b", 120.0, "k"), None, "there is no lease")
        yes(await store.lease("r", "a", 100.0, 110.0), "it was free")
        expect(await store.take("r", "a", "b", 120.0, "k"), TakenRun(None, 0), "no event")
        expect(await store.holder("r", 119.0), "b", "the other has it")
        await store.append("r", some("x"), at=101.0)
        await store.append("r", some("y", "z"), at=101.0, key="k")
        await store.append("s", some("x"), at=101.0, key="k")
        expect(await store.take("r", "a", "c", 130.0, "k"), None, "it is not its lease any more")
        expect(await store.holder("r", 119.0), "b", "so nothing happens")
        expect(await store.take("r", "b", "c", 130.0, "k"), TakenRun(2, 3), "its own events")
        expect(await store.holder("r", 129.0), "c", "and the third has it")


async def leases_that_have_run_out_are_found(open_store: OpenRunEvents) -> None:
    """The longest first, at most so many, and none that was released."""
    async with opened(open_store) as store:
        for run, until in {"late": 120.0, "early": 110.0, "held": 130.0, "done": 105.0}.items():
            yes(await store.lease(run, f"of {run}", 100.0, until), "it was free")
        await store.append("done", some("x"), at=104.0, release="of done")
        found = list(await store.overdue(120.0, 9))
        wanted = [("early", "of early", 110.0), ("late", "of late", 120.0)]
        expect(found, wanted, "those whose time is over")
        expect(list(await store.overdue(120.0, 1)), found[:1], "the longest first")


RUN_EVENT_CHECKS: tuple[RunEventCheck, ...] = (
    *EVENT_CHECKS,
    a_lease_has_one_holder,
    the_last_events_release_the_lease,
    the_last_events_pass_the_lease_on,
    a_run_begins_once,
    an_open_run_stays_whole,
    only_who_holds_the_lease_reports_the_end,
    only_who_holds_the_lease_adds_events_under_it,
    a_lease_passes_from_its_owner_to_another,
    who_takes_a_lease_learns_where_the_events_are,
    leases_that_have_run_out_are_found,
)
"""Each needs the store opened once."""

"""What every store of calls promises about leases, rounds and the end of a call."""

from __future__ import annotations

from dataclasses import replace

from anabranch._durable.store import OpenedRound, RoundRecord
from anabranch.testing.suites._call_samples import CallStoreCheck, OpenCallStore, a_call
from anabranch.testing.suites._expectations import expect, no, opened, refused, yes

__all__ = ["CALL_ROUND_CHECKS"]


async def a_lease_has_one_owner(open_store: OpenCallStore) -> None:
    """No other owner gets it until its end; its own may renew it, and release it before the end."""
    async with opened(open_store) as store:
        await store.begin(a_call())
        yes(await store.lease("call_1", "a", 100.0, 110.0), "free")
        no(await store.lease("call_1", "b", 109.9, 120.0), "held by another")
        yes(await store.lease("call_1", "a", 109.9, 120.0), "renewed by its owner")
        no(await store.lease("call_1", "b", 119.9, 130.0), "held for longer now")
        await store.release("call_1", "b")
        no(await store.lease("call_1", "b", 119.9, 130.0), "not b's to release")
        await store.release("call_1", "a")
        yes(await store.lease("call_1", "b", 111.0, 130.0), "released")
        await store.release("call_1", "a")
        no(await store.lease("call_1", "a", 111.0, 130.0), "not a's any more")


async def a_lease_ends_by_itself(open_store: OpenCallStore) -> None:
    """When the owner has died another gets it, and then the first does not."""
    async with opened(open_store) as store:
        await store.begin(a_call())
        await store.lease("call_1", "dead", 100.0, 110.0)
        yes(await store.lease("call_1", "dead", 115.0, 116.0), "late, but unchallenged")
        yes(await store.lease("call_1", "heir", 116.0, 130.0), "over at its end")
        no(await store.lease("call_1", "dead", 120.0, 140.0), "held by the heir")


async def a_lease_from_a_clock_that_was_ahead_is_shortened(open_store: OpenCallStore) -> None:
    """Who waits for it waits for a lease of its own length, unless it is renewed."""
    async with opened(open_store) as store:
        for name in ("one", "two"):
            await store.begin(a_call(name))
            await store.lease(name, "ahead", 3700.0, 3710.0)
        no(await store.lease("one", "a", 100.0, 110.0), "held")
        no(await store.lease("one", "a", 105.0, 115.0), "held, and not for longer than at first")
        yes(await store.lease("one", "a", 110.0, 120.0), "over")
        expect(await store.open_round("two", 0, "a", 100.0, 110.0), None, "held")
        yes(await store.lease("two", "ahead", 3705.0, 3715.0), "renewed by its owner")
        expect(await store.open_round("two", 0, "a", 111.0, 121.0), None, "held for longer now")
        yes(await store.open_round("two", 0, "a", 121.0, 131.0) is not None, "over")


async def the_first_end_of_a_round_stays(open_store: OpenCallStore) -> None:
    """The second is returned how the round ended, and changes nothing."""
    async with opened(open_store) as store:
        await store.begin(a_call())
        first, second = RoundRecord(0, "yes", "one"), RoundRecord(0, "no", "two")
        expect(await store.end_round("call_1", first, deadline=300.0), first, "it is the first")
        found = await store.end_round("call_1", second, deadline=999.0, status="failed")
        expect(found, first, "the first is returned")
        expect(await store.round("call_1", 0), first, "the first stays")
        expect(await store.find("call_1"), a_call(deadline=300.0), "the second changes nothing")


async def the_end_of_a_round_updates_the_call(open_store: OpenCallStore) -> None:
    """Deadline and status become the call's; without a deadline the old one stays."""
    async with opened(open_store) as store:
        await store.begin(a_call())
        await store.end_round("call_1", RoundRecord(0, "", ""), deadline=None)
        expect(await store.find("call_1"), a_call(), "no deadline, no change")
        await store.end_round("call_1", RoundRecord(1, "", ""), deadline=250.0)
        expect(await store.find("call_1"), a_call(deadline=250.0), "a new deadline")
        await store.end_round("call_1", RoundRecord(2, "", ""), deadline=None, status="done")
        done = a_call(deadline=250.0, status="done")
        expect(await store.find("call_1"), done, "a new status")
        late = RoundRecord(3, "", "late")
        expect(
            await store.end_round("call_1", late, deadline=999.0), late, "a late round is stored"
        )
        expect(await store.find("call_1"), done, "but moves no call that is not open")


async def rounds_are_found_by_number(open_store: OpenCallStore) -> None:
    """The latest is the one with the highest number, in whatever order they ended."""
    async with opened(open_store) as store:
        await store.begin(a_call())
        expect(await store.last_round("call_1"), None, "no round has ended")
        for number in (0, 11, 2):
            ended = RoundRecord(number, f"answers {number}", f"reply {number}", f"{number}")
            await store.end_round("call_1", ended, deadline=None)
        expect(await store.round("call_1", 1), None, "this one has not ended")
        found = await store.round("call_1", 2)
        expect(found, RoundRecord(2, "answers 2", "reply 2", "2"), "this one has")
        found = await store.last_round("call_1")
        expect(found, RoundRecord(11, "answers 11", "reply 11", "11"), "the highest number")


async def only_an_open_call_can_be_finished(open_store: OpenCallStore) -> None:
    """The first to finish it does, in whatever way."""
    async with opened(open_store) as store:
        for status in ("done", "failed", "expired"):
            await store.begin(a_call(status))
            yes(await store.finish(status, status), "it was open")
            no(await store.finish(status, "done"), "it is not open any more")
            expect(await store.find(status), a_call(status, status=status), "its end stays")


async def the_deadline_of_an_open_call_can_be_moved(open_store: OpenCallStore) -> None:
    """An open call stays open, with another deadline; one that has ended does not."""
    async with opened(open_store) as store:
        await store.begin(a_call())
        yes(await store.finish("call_1", "open", deadline=500.0), "it is open")
        expect(await store.find("call_1"), a_call(deadline=500.0), "a new deadline")
        yes(await store.finish("call_1", "done"), "it is still open")
        no(await store.finish("call_1", "open", deadline=900.0), "it is not any more")
        expect(await store.find("call_1"), a_call(deadline=500.0, status="done"), "nothing moves")


async def the_version_of_an_open_call_can_be_changed(open_store: OpenCallStore) -> None:
    """It is stored as the call begins, and other code may take an open call over."""
    async with opened(open_store) as store:
        await store.begin(a_call(version="1"))
        expect(await store.find("call_1"), a_call(version="1"), "as it began")
        yes(await store.finish("call_1", "open", version="2"), "it is open")
        expect(await store.find("call_1"), a_call(version="2"), "another version, and no more")
        yes(await store.finish("call_1", "open", deadline=500.0), "it is still open")
        found = await store.open_round("call_1", 0, "w", 0.0, 9.0)
        taken = a_call(version="2", deadline=500.0)
        expect(found, OpenedRound(taken, None, {}), "the version stays")


async def the_longest_overdue_call_comes_first(open_store: OpenCallStore) -> None:
    """Open calls past their deadline have expired; a limit leaves out those that expired last."""
    async with opened(open_store) as store:
        for name, deadline in (("c", 30.0), ("a", 10.0), ("later", 41.0), ("b", 20.0)):
            await store.begin(a_call(name, deadline=deadline))
        await store.begin(a_call("done", deadline=5.0))
        await store.finish("done", "done")
        found = [call.call_id for call in await store.expired(30.0, 10)]
        expect(found, ["a", "b", "c"], "the longest overdue first, the deadline included")
        found = [call.call_id for call in await store.expired(30.0, 2)]
        expect(found, ["a", "b"], "no more than the limit")
        expect(await store.expired(9.9, 10), [], "none is overdue yet")
        expect((await store.expired(10.0, 1))[0], a_call("a", deadline=10.0), "all of a call")


async def pruning_deletes_all_of_a_call(open_store: OpenCallStore) -> None:
    """Calls that are over and old go, with their entries, rounds and leases; open ones never."""
    async with opened(open_store) as store:
        for name, deadline, status in (
            ("old", 1.0, "done"),
            ("new", 9.0, "done"),
            ("open", 1.0, ""),
        ):
            await store.begin(a_call(name, deadline=deadline))
            await store.record(name, 0, {"step": name})
            await store.end_round(name, RoundRecord(0, "", name), deadline=None)
            await store.lease(name, "a", 0.0, 1e12)
            if status:
                await store.finish(name, status)
        expect(await store.prune(9.0, 10), 1, "one is over, with a deadline before")
        expect(await store.find("old"), None, "it is gone")
        await store.begin(a_call("old"))
        expect(await store.entries("old", 0), {}, "so are its entries")
        expect(await store.last_round("old"), None, "so are its rounds")
        yes(await store.lease("old", "b", 0.0, 1.0), "so is its lease")
        expect(await store.entries("open", 0), {"step": "open"}, "others stay")
        expect(await store.entries("new", 0), {"step": "new"}, "others stay")


async def pruning_stops_at_its_limit(open_store: OpenCallStore) -> None:
    """So that a large store is pruned in many short transactions."""
    async with opened(open_store) as store:
        for number in range(5):
            await store.begin(a_call(f"call_{number}", deadline=float(number)))
            await store.finish(f"call_{number}", "failed")
        expect(await store.prune(100.0, 3), 3, "no more than the limit")
        left = [await store.find(f"call_{number}") is not None for number in range(5)]
        expect(left, [False, False, False, True, True], "the oldest first")
        expect(await store.prune(100.0, 3), 2, "the rest")


async def opening_a_round_takes_the_lease(open_store: OpenCallStore) -> None:
    """As lease does, for the owner that is named, until the end that is named."""
    async with opened(open_store) as store:
        await store.begin(a_call())
        found = await store.open_round("call_1", 0, "a", 100.0, 110.0)
        expect(found, OpenedRound(a_call(), None, {}), "nothing is known of the round")
        expect(await store.open_round("call_1", 0, "b", 109.0, 120.0), None, "held by another")
        no(await store.lease("call_1", "b", 109.0, 120.0), "for lease, too")
        yes(await store.open_round("call_1", 0, "a", 109.0, 120.0) is not None, "renewed")
        yes(await store.open_round("call_1", 0, "b", 120.0, 130.0) is not None, "over at its end")
        no(await store.lease("call_1", "a", 120.0, 130.0), "held by b now")


async def opening_a_round_returns_what_is_recorded_of_it(open_store: OpenCallStore) -> None:
    """Its call, its end and its entries, and nothing of other rounds."""
    async with opened(open_store) as store:
        await store.begin(a_call())
        await store.record("call_1", 1, {"z": "1", "a": "2"})
        await store.record("call_1", 2, {"z": "3", "b": "4"})
        ended = RoundRecord(1, "yes", "reply", "state")
        await store.end_round("call_1", ended, deadline=300.0, status="failed")
        first = await store.open_round("call_1", 1, "a", 100.0, 110.0)
        known = a_call(deadline=300.0, status="failed")
        expect(first, OpenedRound(known, ended, {"z": "1", "a": "2"}), "what is known")
        yes(first is not None and list(first.entries) == ["z", "a"], "in the order of recording")
        second = await store.open_round("call_1", 2, "a", 100.0, 110.0)
        expect(second, OpenedRound(known, None, {"b": "4"}), "what is known of the next one")


async def the_end_of_a_round_is_returned_without_a_lease(open_store: OpenCallStore) -> None:
    """A round that has ended needs no lease: none is asked for, and none is taken."""
    async with opened(open_store) as store:
        await store.begin(a_call())
        ended = RoundRecord(0, "yes", "reply")
        await store.end_round("call_1", ended, deadline=None)
        known = OpenedRound(a_call(), ended, {})
        expect(await store.open_round("call_1", 0, "a", 100.0, 110.0), known, "its end is returned")
        yes(await store.lease("call_1", "b", 100.0, 110.0), "the lease was not taken")
        expect(
            await store.open_round("call_1", 0, "a", 109.0, 120.0),
            known,
            "also while b has the lease",
        )
        expect(await store.open_round("call_1", 0, "b", 105.0, 999.0), known, "and to b")
        yes(await store.lease("call_1", "a", 110.0, 120.0), "b's lease was not prolonged")


async def opening_a_round_may_begin_its_call(open_store: OpenCallStore) -> None:
    """Only if it is not there; an unknown call with nothing to begin it as is refused."""
    async with opened(open_store) as store:
        await refused(store.open_round("call_1", 0, "a", 100.0, 110.0), "nothing to begin it as")
        expect(await store.find("call_1"), None, "and nothing was begun")
        found = await store.open_round("call_1", 0, "a", 100.0, 110.0, new=a_call())
        expect(found, OpenedRound(a_call(), None, {}), "it is as it was begun")
        expect(await store.find("call_1"), a_call(), "and is there")
        no(await store.lease("call_1", "b", 109.0, 120.0), "with its lease")
        other = a_call(tool="other", deadline=1.0)
        found = await store.open_round("call_1", 0, "b", 109.0, 120.0, new=other)
        expect(found, None, "the lease on what is there is held by another")
        await store.release("call_1", "a")
        found = await store.open_round("call_1", 0, "b", 109.0, 120.0, new=other)
        expect(found, OpenedRound(a_call(), None, {}), "what is there stays as it is")


async def the_end_of_a_round_releases_the_lease(open_store: OpenCallStore) -> None:
    """If it is its owner's, and also if the round had ended before."""
    async with opened(open_store) as store:
        await store.begin(a_call())
        for number, text in ((0, "first"), (0, "second"), (1, "third")):
            yes(await store.lease("call_1", "a", 100.0, 110.0), "free")
            ended = RoundRecord(number, text, text)
            await store.end_round("call_1", ended, deadline=None, release="a")
            yes(await store.lease("call_1", "b", 100.0, 110.0), "given back")
            again = replace(ended, reply="again")
            await store.end_round("call_1", again, deadline=None, release="a")
            no(await store.lease("call_1", "a", 100.0, 110.0), "not a's to give back")
            await store.release("call_1", "b")
        last = RoundRecord(2, "", "")
        await store.lease("call_1", "a", 100.0, 110.0)
        await store.end_round("call_1", last, deadline=None, status="done")
        no(await store.lease("call_1", "b", 100.0, 110.0), "it was not released")


CALL_ROUND_CHECKS: tuple[CallStoreCheck, ...] = (
    a_lease_has_one_owner,
    a_lease_ends_by_itself,
    a_lease_from_a_clock_that_was_ahead_is_shortened,
    opening_a_round_takes_the_lease,
    opening_a_round_returns_what_is_recorded_of_it,
    the_end_of_a_round_is_returned_without_a_lease,
    opening_a_round_may_begin_its_call,
    the_first_end_of_a_round_stays,
    the_end_of_a_round_updates_the_call,
    the_end_of_a_round_releases_the_lease,
    rounds_are_found_by_number,
    only_an_open_call_can_be_finished,
    the_deadline_of_an_open_call_can_be_moved,
    the_version_of_an_open_call_can_be_changed,
    the_longest_overdue_call_comes_first,
    pruning_deletes_all_of_a_call,
    pruning_stops_at_its_limit,
)
"""Each needs the store opened once."""

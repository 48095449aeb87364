"""Checks of stores of calls: leases, rounds and the end of a call."""

from __future__ import annotations

from anabranch.stores import CallEvent, CallState, OpenedRound
from tests.suites.call_samples import (
    CallStoreCheck,
    OpenCallStore,
    a_call,
    an_end,
    begun,
    ended,
    run,
)
from tests.suites.expectations import expect, opened, refused, yes


async def a_lease_from_a_clock_that_was_ahead_is_shortened(open_store: OpenCallStore) -> None:
    """Who waits for it waits for a lease of its own length, unless it is renewed."""
    async with opened(open_store) as store:
        for name in ("one", "two"):
            await begun(store, name)
            await store.open_round(name, 0, "ahead", 3700.0, 3710.0)
        expect(await store.open_round("one", 0, "a", 100.0, 110.0), None, "held")
        found = await store.take_to_undo("one", "a", 105.0, 115.0, is_due=False)
        expect(found, None, "held, and not for longer than at first")
        yes(await store.open_round("one", 0, "a", 110.0, 120.0) is not None, "over")
        expect(await store.open_round("two", 0, "a", 100.0, 110.0), None, "held")
        yes(await store.renew("two", "ahead", 3715.0), "renewed by its owner")
        expect(await store.open_round("two", 0, "a", 111.0, 121.0), None, "held for longer now")
        yes(await store.open_round("two", 0, "a", 121.0, 131.0) is not None, "over")


async def opening_a_round_returns_what_is_recorded_of_it(open_store: OpenCallStore) -> None:
    """Its call and its entries, and nothing of other rounds."""
    async with opened(open_store) as store:
        await begun(store)
        await store.record("call_1", 1, {"z": "1", "a": "2"})
        await store.record("call_1", 2, {"z": "3", "b": "4"})
        first = await run(store, number=1)
        expect(first and first.entries, {"z": "1", "a": "2"}, "what is known")
        yes(first is not None and list(first.entries) == ["z", "a"], "in the order of recording")
        second = await run(store, number=2)
        expect(second and second.entries, {"b": "4"}, "what is known of the next one")


async def the_end_of_a_round_is_returned_without_a_lease(open_store: OpenCallStore) -> None:
    """A round that has ended needs no lease: none is asked for, and none is taken."""
    async with opened(open_store) as store:
        await begun(store)
        await ended(store)
        known = OpenedRound(a_call(state=CallState.WAITING), an_end(), {}, {})
        expect(await run(store), known, "its end is returned")
        yes(await run(store, number=1, owner="b") is not None, "the lease was not taken")
        found = await run(store)
        expect(found and found.ended, an_end(), "also while b has the lease")
        found = await store.open_round("call_1", 0, "b", 105.0, 999.0)
        expect(found and found.is_leased, False, "and to b")
        yes(await store.open_round("call_1", 1, "c", 110.0, 120.0) is not None, "not prolonged")


async def opening_a_round_may_begin_its_call(open_store: OpenCallStore) -> None:
    """Only if it is not there; an unknown call with nothing to begin it as is refused."""
    async with opened(open_store) as store:
        await refused(run(store), "nothing to begin it as")
        expect(await store.find("call_1"), None, "and nothing was begun")
        found = await store.open_round("call_1", 0, "a", 100.0, 110.0, new=a_call())
        running = a_call(state=CallState.RUNNING)
        expect(found, OpenedRound(running, None, {}, {}, is_leased=True), "it runs at once")
        expect(await store.find("call_1"), running, "and is there")
        other = a_call(tool="other", deadline=1.0)
        found = await store.open_round("call_1", 0, "b", 109.0, 120.0, new=other)
        expect(found, None, "the lease on what is there is held by another")
        await store.release("call_1", "a")
        found = await store.open_round("call_1", 0, "b", 109.0, 120.0, new=other)
        expect(found and found.call.tool, "pick_card", "what is there stays as it is")


async def rounds_are_found_by_number(open_store: OpenCallStore) -> None:
    """The latest is the one with the highest number, in whatever order they ended."""
    async with opened(open_store) as store:
        await begun(store)
        expect(await store.last_round("call_1"), None, "no round has ended")
        for number in (0, 11, 2):
            await ended(store, number=number)
        expect(await store.round("call_1", 1), None, "this one has not ended")
        expect(await store.round("call_1", 2), an_end(2), "this one has")
        expect(await store.last_round("call_1"), an_end(11), "the highest number")


async def the_longest_overdue_call_comes_first(open_store: OpenCallStore) -> None:
    """Open calls past their deadline have expired; a limit leaves out those that expired last."""
    async with opened(open_store) as store:
        for name, deadline in (("c", 30.0), ("a", 10.0), ("later", 41.0), ("b", 20.0)):
            await begun(store, name, deadline=deadline)
        await begun(store, "done")
        await run(store, "done")
        await store.end_round("done", an_end(), CallEvent.RETURN, owner="a", deadline=5.0)
        found = [call.call_id for call in await store.expired(30.0, 10)]
        expect(found, ["a", "b", "c"], "the longest overdue first, the deadline included")
        found = [call.call_id for call in await store.expired(30.0, 2)]
        expect(found, ["a", "b"], "no more than the limit")
        expect(await store.expired(9.9, 10), [], "none is overdue yet")
        expect((await store.expired(10.0, 1))[0], a_call("a", deadline=10.0), "all of a call")


async def pruning_deletes_all_of_a_call(open_store: OpenCallStore) -> None:
    """Calls that are over and old go, with all that belongs to them; open ones never."""
    async with opened(open_store) as store:
        for name, deadline, event in (
            ("old", 1.0, CallEvent.RETURN),
            ("new", 9.0, CallEvent.RETURN),
            ("open", 1.0, CallEvent.ASK),
        ):
            await begun(store, name)
            await store.record(name, 0, {"step": name})
            await store.answer(name, {"asked": name}, by="page")
            await store.undone(name, "step")
            await run(store, name)
            await store.end_round(name, an_end(), event, owner="a", deadline=deadline)
        expect(await store.prune(9.0, 10), 1, "one is over, with a deadline before")
        expect(await store.find("old"), None, "it is gone")
        await begun(store, "old")
        expect(await store.entries("old", 0), {}, "so are its entries")
        expect(await store.last_round("old"), None, "so are its rounds")
        expect(await store.answers("old"), {}, "so are its answers")
        expect(await store.undone_steps("old"), frozenset[str](), "so is what was undone")
        expect(await store.entries("open", 0), {"step": "open"}, "others stay")
        expect(await store.entries("new", 0), {"step": "new"}, "others stay")


async def pruning_stops_at_its_limit(open_store: OpenCallStore) -> None:
    """So that a large store is pruned in many short transactions."""
    async with opened(open_store) as store:
        for number in range(5):
            name = f"call_{number}"
            await begun(store, name)
            await run(store, name)
            end = store.end_round
            await end(name, an_end(), CallEvent.RAISE, owner="a", deadline=float(number))
        expect(await store.prune(100.0, 3), 3, "no more than the limit")
        left = [await store.find(f"call_{number}") is not None for number in range(5)]
        expect(left, [False, False, False, True, True], "the oldest first")
        expect(await store.prune(100.0, 3), 2, "the rest")


CALL_ROUND_CHECKS: tuple[CallStoreCheck, ...] = (
    a_lease_from_a_clock_that_was_ahead_is_shortened,
    opening_a_round_returns_what_is_recorded_of_it,
    the_end_of_a_round_is_returned_without_a_lease,
    opening_a_round_may_begin_its_call,
    rounds_are_found_by_number,
    the_longest_overdue_call_comes_first,
    pruning_deletes_all_of_a_call,
    pruning_stops_at_its_limit,
)
"""Each needs the store opened once."""

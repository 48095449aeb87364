"""Checks of stores of calls: writes that name the owner of the lease.

A worker may be suspended at any moment and go on when another has long taken over, and has released
the lease again: what it then writes in its own name must not count.
"""

from __future__ import annotations

from anabranch._durable.call_states import CallEvent, CallState
from anabranch._durable.store import CallStore
from anabranch.testing.suites._call_samples import (
    CallStoreCheck,
    OpenCallStore,
    a_call,
    an_end,
    begun,
    ended,
    run,
)
from anabranch.testing.suites._expectations import expect, no, opened, refused, yes

__all__ = ["CALL_FENCE_CHECKS"]


async def _taken_over(store: CallStore, *names: str) -> None:
    """Begin calls whose lease ``late`` had: of all ``b`` has it now, and has released the last."""
    for name in names:
        await begun(store, name)
        await store.open_round(name, 0, "late", 100.0, 110.0)
        await store.open_round(name, 0, "b", 110.0, 120.0)
    await store.release(names[-1], "b")


async def only_who_has_a_lease_renews_it(open_store: OpenCallStore) -> None:
    """Also one that has run out; one that another has taken, or that was released, never again."""
    async with opened(open_store) as store:
        await begun(store)
        no(await store.renew("call_1", "a", 110.0), "it never had one")
        await run(store)
        yes(await store.renew("call_1", "a", 120.0), "it has it")
        expect(await store.open_round("call_1", 0, "b", 119.9, 130.0), None, "it lasts longer now")
        await _taken_over(store, "taken", "released")
        no(await store.renew("taken", "late", 130.0), "another has it")
        yes(await store.renew("taken", "b", 120.0), "and can renew it")
        no(await store.renew("released", "late", 130.0), "another had it since")
        no(await store.renew("released", "b", 130.0), "it was released")
        yes(await run(store, "released", owner="c") is not None, "and is still free")
        no(await store.renew("unknown", "a", 130.0), "there is no such call")


async def only_who_has_the_lease_moves_a_call_in_its_name(open_store: OpenCallStore) -> None:
    """Nor does another change its version, or say that it has failed."""
    states = {"taken": CallState.RUNNING, "released": CallState.READY}
    async with opened(open_store) as store:
        await _taken_over(store, *states)
        for name, state in states.items():
            for event in (CallEvent.RAISE, CallEvent.LEAVE):
                no(await store.move(name, event, owner="late", deadline=9.0), "it had the lease")
            no(await store.adopt(name, "9", "late"), "it had the lease")
            no(await store.fail(name, "why", "late"), "it had the lease")
            expect(await store.find(name), a_call(name, state=state), "nothing was changed")
        yes(await store.adopt("taken", "2", "b"), "it has the lease")
        yes(await store.move("taken", CallEvent.RAISE, owner="b", deadline=300.0), "it may be late")
        failed = a_call("taken", state=CallState.FAILED, version="2", deadline=300.0)
        expect(await store.find("taken"), failed, "so that it counts")
        no(await store.move("taken", CallEvent.RAISE, owner="b"), "it has it no more")


async def only_who_has_the_lease_ends_a_round_in_its_name(open_store: OpenCallStore) -> None:
    """But how the round has ended before is returned to all."""
    states = {"taken": CallState.RUNNING, "released": CallState.READY}
    late, end = an_end(reply="late"), an_end()
    async with opened(open_store) as store:
        await _taken_over(store, *states)
        for name, state in states.items():
            ending = store.end_round(name, late, CallEvent.RAISE, owner="late", deadline=9.0)
            await refused(ending, "another has had the lease since")
            expect(await store.round(name, 0), None, "the round has not ended")
            expect(await store.find(name), a_call(name, state=state), "nor the call")
        expect(await store.open_round("taken", 0, "c", 111.0, 121.0), None, "b has its lease still")
        found = await store.end_round("taken", end, CallEvent.ASK, owner="b", deadline=300.0)
        expect(found, end, "b has it")
        found = await store.end_round("taken", late, CallEvent.ASK, owner="late", deadline=9.0)
        expect(found, end, "the first end is returned")


async def what_has_happened_is_recorded_by_all(open_store: OpenCallStore) -> None:
    """Also late, and after the end of the call."""
    async with opened(open_store) as store:
        await _taken_over(store, "taken", "released")
        for name in ("taken", "released"):
            recorded = await store.record(name, 0, {"happened": "1"})
            expect(recorded, {"happened": "1"}, "no lease is asked for")
        await begun(store)
        await ended(store, event=CallEvent.RETURN)
        expect(await store.record("call_1", 0, {"late": "1"}), {"late": "1"}, "it is over")


CALL_FENCE_CHECKS: tuple[CallStoreCheck, ...] = (
    only_who_has_a_lease_renews_it,
    only_who_has_the_lease_moves_a_call_in_its_name,
    only_who_has_the_lease_ends_a_round_in_its_name,
    what_has_happened_is_recorded_by_all,
)
"""Each needs the store opened once."""

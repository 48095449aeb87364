"""What every store of calls promises about writes that name the owner of the lease.

A worker may be suspended at any moment and go on when another has long taken over, and has released
the lease again: what it then writes in its own name must not count.
"""

from __future__ import annotations

from anabranch._durable.store import CallStore, RoundRecord
from anabranch.testing.suites._call_samples import CallStoreCheck, OpenCallStore, a_call
from anabranch.testing.suites._expectations import expect, no, opened, refused, yes

__all__ = ["CALL_FENCE_CHECKS"]


async def _taken_over(store: CallStore, *names: str) -> None:
    """Begin calls whose lease ``late`` had: of all ``b`` has it now, and has released the last."""
    for name in names:
        await store.begin(a_call(name))
        await store.lease(name, "late", 100.0, 110.0)
        await store.lease(name, "b", 110.0, 120.0)
    await store.release(names[-1], "b")


async def only_who_has_a_lease_renews_it(open_store: OpenCallStore) -> None:
    """Also one that has run out; one that another has taken, or that was released, never again."""
    async with opened(open_store) as store:
        await store.begin(a_call())
        no(await store.renew("call_1", "a", 110.0), "it never had one")
        await store.lease("call_1", "a", 100.0, 110.0)
        yes(await store.renew("call_1", "a", 120.0), "it has it")
        no(await store.lease("call_1", "b", 119.9, 130.0), "it lasts for longer now")
        await _taken_over(store, "taken", "released")
        no(await store.renew("taken", "late", 130.0), "another has it")
        yes(await store.renew("taken", "b", 120.0), "and can renew it")
        no(await store.renew("released", "late", 130.0), "another had it since")
        no(await store.renew("released", "b", 130.0), "it was released")
        yes(await store.lease("released", "c", 111.0, 121.0), "and is still free")
        no(await store.renew("unknown", "a", 130.0), "there is no such call")


async def only_who_has_the_lease_finishes_a_call_in_its_name(open_store: OpenCallStore) -> None:
    """Nor does another move its deadline, or change its version."""
    async with opened(open_store) as store:
        await _taken_over(store, "taken", "released")
        for name in ("taken", "released"):
            no(await store.finish(name, "expired", deadline=9.0, owner="late"), "it had the lease")
            no(await store.finish(name, "open", deadline=9.0, owner="late"), "it had the lease")
            no(await store.finish(name, "open", version="9", owner="late"), "it had the lease")
            expect(await store.find(name), a_call(name), "nothing was changed")
        yes(await store.finish("taken", "open", deadline=300.0, owner="b"), "it has the lease")
        expect(await store.find("taken"), a_call("taken", deadline=300.0), "so that it counts")
        no(await store.lease("taken", "c", 111.0, 121.0), "it has it still")
        yes(await store.finish("taken", "expired", owner="b"), "it may be late itself")
        no(await store.finish("taken", "failed", owner="b"), "it is not open any more")
        yes(await store.finish("released", "done"), "no lease is needed where none is named")


async def only_who_has_the_lease_ends_a_round_in_its_name(open_store: OpenCallStore) -> None:
    """But how the round has ended before is returned to all."""
    late, ended = RoundRecord(0, "yes", "late"), RoundRecord(0, "yes", "reply")
    async with opened(open_store) as store:
        await _taken_over(store, "taken", "released")
        for name in ("taken", "released"):
            end = store.end_round(name, late, deadline=9.0, status="failed", release="late")
            await refused(end, "another has had the lease since")
            expect(await store.round(name, 0), None, "the round has not ended")
            expect(await store.find(name), a_call(name), "nor the call")
        no(await store.lease("taken", "c", 111.0, 121.0), "the other's lease is not released")
        expect(await store.end_round("taken", ended, deadline=None, release="b"), ended, "b has it")
        found = await store.end_round("taken", late, deadline=9.0, release="late")
        expect(found, ended, "the first end is returned")


async def only_who_has_the_lease_records_in_its_name(open_store: OpenCallStore) -> None:
    """What happened is recorded by all, who name no owner; what decides is not."""
    async with opened(open_store) as store:
        await _taken_over(store, "taken", "released")
        for name in ("taken", "released"):
            recorded = await store.record(name, 0, {"happened": "1"})
            expect(recorded, {"happened": "1"}, "it names no owner")
            decided = store.record(name, 0, {"happened": "2", "decided": "3"}, owner="late")
            await refused(decided, "another has had the lease since")
            expect(await store.entries(name, 0), {"happened": "1"}, "nothing was written")
            found = await store.record(name, 0, {"happened": "2"}, owner="late")
            expect(found, {"happened": "1"}, "what is stored already is returned")
        found = await store.record("taken", 0, {"happened": "2", "decided": "3"}, owner="b")
        expect(found, {"happened": "1", "decided": "3"}, "b has the lease")


CALL_FENCE_CHECKS: tuple[CallStoreCheck, ...] = (
    only_who_has_a_lease_renews_it,
    only_who_has_the_lease_finishes_a_call_in_its_name,
    only_who_has_the_lease_ends_a_round_in_its_name,
    only_who_has_the_lease_records_in_its_name,
)
"""Each needs the store opened once."""

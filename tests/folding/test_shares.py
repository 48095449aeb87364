"""All sessions of one caller have one share of the open branches, so that others get places."""

import asyncio

import pytest

from anabranch.folding import (
    Branch,
    BranchRows,
    BranchService,
    BranchStore,
    FoldingSettings,
    TooManyBranchesError,
)
from anabranch.stores import open_branch_store
from anabranch.testing import ManualClock
from tests.folding.hosts import TASK

LIMITS = FoldingSettings(
    max_concurrent_per_caller=3, max_concurrent_per_instance=6, delete_after_seconds=3_600
)


@pytest.fixture
def store() -> BranchStore:
    return open_branch_store("memory:")


async def opened(service: BranchService) -> list[Branch]:
    """Open branches, each in a new session, until the service refuses; return their number."""
    made = await asyncio.gather(*(service.create(**TASK) for _ in range(6)), return_exceptions=True)
    refusals = [each for each in made if isinstance(each, BaseException)]
    assert refusals
    assert all(isinstance(each, TooManyBranchesError) for each in refusals), refusals
    assert "caller" in str(refusals[0])
    return [each.branch for each in made if not isinstance(each, BaseException)]


async def test_the_sessions_of_one_caller_leave_room_for_others(store: BranchStore) -> None:
    """Excludes a share for each session: a caller could create sessions at will."""
    host = BranchService(store, LIMITS, clock=ManualClock())
    assert len(await opened(host.of("bob"))) == 3
    assert len(await opened(host.of("ida"))) == 3
    await store.close()


async def test_every_kind_of_end_releases_the_branchs_place(store: BranchStore) -> None:
    clock = ManualClock()
    host = BranchService(store, LIMITS, clock=clock)
    bob = host.of("bob")
    first, second, _ = await opened(bob)
    await bob.complete("done", branch_id=first.id)
    await host.force(second.id, "no longer needed")
    assert len(await opened(bob)) == 2
    clock.advance(400)
    await host.expire()
    outer = (await bob.create(**TASK)).branch
    await bob.create(**TASK, parent_branch_id=outer.id)
    assert len(await opened(bob)) == 1
    await host.force(outer.id, "its children, too")
    assert len(await opened(bob)) == 2
    await store.close()


async def test_a_share_outlives_the_deletion_of_old_records(store: BranchStore) -> None:
    """Excludes a caller that gets a second share because its account was unused for long."""
    clock = ManualClock()
    settings = LIMITS.model_copy(update={"max_timeout_seconds": 90_000})
    host = BranchService(store, settings, clock=clock)
    made = [(await host.of("bob").create(**TASK, timeout_seconds=80_000)).branch for _ in range(3)]
    clock.advance(20_000)
    await host.expire()
    assert await opened(host.of("bob")) == []
    clock.advance(70_000)
    await host.expire()
    assert len(await opened(host.of("bob"))) == len(made)

    def account(rows: BranchRows) -> object:
        return rows.session(made[0].session_id.partition("/")[0])

    assert await store.transaction(account) is not None
    clock.advance(90_000)
    await host.expire()
    clock.advance(90_000)
    await host.expire()
    assert await store.transaction(account) is None, "nothing is stored for ever"
    await store.close()


async def test_callers_without_names_have_no_share(store: BranchStore) -> None:
    """Without names, all callers would have one share together."""
    for service in (BranchService(store, LIMITS), BranchService(store, LIMITS).of("")):
        made = [(await service.create(**TASK)).branch for _ in range(6)]
        with pytest.raises(TooManyBranchesError, match="instance"):
            await service.create(**TASK)
        for branch in made:
            await service.complete("done", branch_id=branch.id)
    await store.close()


async def test_a_refusal_takes_nothing_of_a_share(store: BranchStore) -> None:
    """A refusal is committed together with the branches whose time has ended."""
    host = BranchService(store, LIMITS, clock=ManualClock())
    made = [(await host.create(**TASK)).branch for _ in range(6)]
    for _ in range(4):
        with pytest.raises(TooManyBranchesError, match="instance"):
            await host.of("bob").create(**TASK)
    for branch in made:
        await host.complete("done", branch_id=branch.id)
    assert len(await opened(host.of("bob"))) == 3
    await store.close()

"""The suite for stores of branches: one check for each promise of ``BranchStore``."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeAlias

from anabranch.errors import StoreError
from anabranch.folding import Branch, BranchRows, BranchStore, Session
from tests.suites.expectations import TEXTS, expect, no, opened, refused, yes

OpenBranchStore: TypeAlias = Callable[[], BranchStore]
"""Opens a store of branches."""

BranchStoreCheck: TypeAlias = Callable[[OpenBranchStore], Awaitable[None]]
"""Checks one promise; raises ``AssertionError`` if it is broken."""


def _a_branch(branch_id: str = "br_1", **changes: Any) -> Branch:
    return replace(
        Branch(
            id=branch_id,
            session_id="fs_1",
            parent_id=None,
            depth=1,
            description="Find it",
            prompt="Look everywhere.",
            budget_total=100,
            timeout_seconds=30,
            deadline=130.0,
            created_at=100.0,
        ),
        **changes,
    )


async def _put(store: BranchStore, *records: Branch | Session) -> None:
    def work(rows: BranchRows) -> None:
        for record in records:
            if isinstance(record, Branch):
                rows.put_branch(record)
            else:
                rows.put_session(record)

    await store.transaction(work)


async def a_branch_is_read_as_it_was_written(open_store: OpenBranchStore) -> None:
    """All fields come back, with any text; a second write replaces the branch."""
    async with opened(open_store) as store:
        for number, text in enumerate(TEXTS):
            branch = _a_branch(
                f"br_{number}{text}",
                parent_id=text,
                description=text,
                result=text,
                error=text,
                partial=text,
                injected_memories=(text, "m"),
                warned=True,
                extract_memory=True,
            )
            await _put(store, branch)
            expect(await store.branch(branch.id), branch, "a branch is found")
            closed = replace(branch, status="completed", completed_at=101.5, budget_used=7)
            await _put(store, closed)
            expect(await store.branch(branch.id), closed, "it is replaced")
        expect(len(await store.branches("fs_1")), len(TEXTS), "each is there once")
        expect(await store.branch("br_unknown"), None, "no branch")
        expect(await store.branches("unknown"), [], "no branches")


async def a_transaction_sees_its_own_writes(open_store: OpenBranchStore) -> None:
    """A transaction also sees earlier writes."""
    session = Session(id="fs_1", budget_total=None, open=2, full_until=3.25, touched_at=100.0)

    def work(rows: BranchRows) -> None:
        expect(rows.session("fs_1"), None, "no session yet")
        rows.put_session(session)
        rows.put_session(replace(session, budget_total=50, budget_used=1))
        expect(rows.session("fs_1"), replace(session, budget_total=50, budget_used=1), "session")
        rows.put_branch(_a_branch())
        rows.put_branch(_a_branch("br_2", parent_id="br_1", status="active"))
        expect(rows.branch("br_1"), _a_branch(), "a branch")
        expect(rows.branch("unknown"), None, "no branch")
        rows.put_branch(_a_branch("br_3", parent_id="br_2", status="failed", completed_at=2.0))
        expect([each.id for each in rows.open_children("br_1")], ["br_2"], "a child")
        expect([each.id for each in rows.open_branches("fs_1")], ["br_1", "br_2"], "open ones")
        rows.put_branch(_a_branch("br_1", status="timeout", completed_at=2.0))
        expect([each.id for each in rows.open_branches("fs_1")], ["br_2"], "closed ones are not")

    async with opened(open_store) as store:
        await store.transaction(work)

        def again(rows: BranchRows) -> list[str]:
            expect(rows.open_branches("fs_2"), [], "those of another session are not")
            found = rows.session("fs_1")
            expect(found and found.budget_used, 1, "the session is there")
            return [each.id for each in rows.open_children("br_1")]

        expect(await store.transaction(again), ["br_2"], "what was written is there")


async def a_failed_transaction_leaves_no_trace(open_store: OpenBranchStore) -> None:
    """Neither the records nor the count of a failed transaction remain."""

    def work(rows: BranchRows) -> None:
        rows.put_session(Session(id="fs_1", budget_total=1, touched_at=1.0))
        rows.put_branch(_a_branch())
        yes(rows.count_open(1, 1), "there is room for one")
        raise KeyError("something is wrong")

    async with opened(open_store) as store:
        try:
            await store.transaction(work)
        except KeyError:
            pass
        else:
            raise AssertionError("what a transaction raises is raised")
        expect(await store.branch("br_1"), None, "no branch was written")
        expect(await store.transaction(lambda rows: rows.session("fs_1")), None, "no session")
        yes(await store.transaction(lambda rows: rows.count_open(1, 1)), "nothing was counted")


async def the_count_of_open_branches_has_a_limit(open_store: OpenBranchStore) -> None:
    """The store has one count; a transaction that would exceed the limit does not change the count."""
    async with opened(open_store) as store:

        async def count(change: int, limit: int | None = None) -> bool:
            return await store.transaction(lambda rows: rows.count_open(change, limit))

        yes(await count(2, 2), "up to the limit")
        no(await count(1, 2), "not beyond it")
        yes(await count(1), "without a limit")
        yes(await count(-2), "down again")
        yes(await count(1, 2), "there is room again")
        no(await count(1, 2), "for one")


async def overdue_branches_are_found_by_their_deadline(open_store: OpenBranchStore) -> None:
    """Only open branches are found, the longest overdue first."""
    async with opened(open_store) as store:
        for name, deadline in (("br_a", 3.0), ("br_b", 1.0), ("br_c", 2.0), ("br_d", 9.0)):
            await _put(store, _a_branch(name, deadline=deadline, status="active"))
        await _put(store, _a_branch("br_e", deadline=0.5, status="failed", completed_at=0.25))
        expect(await store.overdue(3.0, 10), ["br_b", "br_c", "br_a"], "those that are due")
        expect(await store.overdue(3.0, 1), ["br_b"], "no more than the limit")


async def old_branches_are_pruned(open_store: OpenBranchStore) -> None:
    """Closed branches are deleted in portions; then old sessions without branches."""
    async with opened(open_store) as store:
        for number in range(3):
            closed = _a_branch(f"br_{number}", status="failed", completed_at=float(number))
            await _put(store, closed)
        old = Session(id="fs_1", budget_total=1, touched_at=1.0)
        await _put(store, _a_branch("br_open"), old, replace(old, id="fs_2", touched_at=9.0))
        expect(await store.prune(2.0, 1), 1, "no more than the limit")
        expect(await store.prune(2.0, 5), 1, "those from before")
        left = [each.id for each in await store.branches("fs_1")]
        expect(left, ["br_2", "br_open"], "newer and open ones are left")

        async def session(name: str) -> Session | None:
            return await store.transaction(lambda rows: rows.session(name))

        expect(await session("fs_1"), old, "a session that has branches stays")
        await _put(store, _a_branch("br_open", status="failed", completed_at=3.0))
        expect(await store.prune(9.0, 5), 2, "all of them")
        expect(await session("fs_1"), None, "an old session without branches is gone")
        yes(await session("fs_2") is not None, "one that is in use is not")


async def a_closed_branch_store_refuses_operations(open_store: OpenBranchStore) -> None:
    """Closing the store a second time has no effect."""
    async with opened(open_store) as store:
        await store.close()
        await refused(store.branch("br_1"), "closed")
        await refused(store.transaction(lambda rows: rows.branch("br_1")), "closed", StoreError)


async def two_transactions_of_a_session_do_not_mix(open_store: OpenBranchStore) -> None:
    """Each transaction reads the session and adds one; no addition is lost, even for a new session."""
    stores = [open_store() for _ in range(3)]

    def one_more(rows: BranchRows) -> None:
        session = rows.session("fs_1") or Session(id="fs_1", budget_total=None, touched_at=1.0)
        rows.put_session(replace(session, open=session.open + 1))
        rows.count_open(1)

    try:
        await asyncio.gather(*(store.transaction(one_more) for store in stores * 7))
        found = await stores[0].transaction(lambda rows: rows.session("fs_1"))
        expect(found and found.open, 21, "each transaction is seen by the next")
        no(await stores[1].transaction(lambda rows: rows.count_open(1, 21)), "all were counted")
    finally:
        for store in stores:
            await store.close()


BRANCH_STORE_CHECKS: list[BranchStoreCheck] = [
    a_branch_is_read_as_it_was_written,
    a_transaction_sees_its_own_writes,
    a_failed_transaction_leaves_no_trace,
    the_count_of_open_branches_has_a_limit,
    overdue_branches_are_found_by_their_deadline,
    old_branches_are_pruned,
    a_closed_branch_store_refuses_operations,
]
"""The checks that open a store once."""

SHARED_BRANCH_STORE_CHECKS: list[BranchStoreCheck] = [two_transactions_of_a_session_do_not_mix]
"""The checks that open a store several times."""

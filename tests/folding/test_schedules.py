"""Invariants that hold for every schedule of creations, charges, returns, timeouts and crashes."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    invariant,
    multiple,
    precondition,
    rule,
)

from anabranch.folding import (
    OPEN,
    ROOT,
    TRANSITIONS,
    Branch,
    BranchEvent,
    BranchRows,
    BranchService,
    FoldingError,
    FoldingSettings,
    Session,
)
from anabranch.testing import ManualClock
from tests.folding.passing_on import PassingOn
from tests.randomised import examples

SETTINGS = FoldingSettings(
    default_budget=200,
    max_budget=400,
    session_budget=1_500,
    max_concurrent_per_session=5,
    max_concurrent_per_instance=8,
    max_created_per_minute=30,
)
SESSIONS = ("one", "two")


def the_session(name: str, rows: BranchRows) -> Session | None:
    return rows.session(name)


class DyingError(Exception):
    """The process ends before its transaction is committed."""


class Mortal(PassingOn):
    """A store whose process may die in the next transaction."""

    dies = False

    async def transaction(self, work: Callable[[BranchRows], Any]) -> Any:
        def and_die(rows: BranchRows) -> Any:
            value = work(rows)
            if self.dies:
                self.dies = False
                raise DyingError
            return value

        return await self.store.transaction(and_die)


class Schedules(RuleBasedStateMachine):
    """Two sessions of one store, each used by several actors at the same time."""

    branches = Bundle("branches")

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock()
        self.ended: dict[str, Branch] = {}
        self.warned: list[str] = []
        self.charged: dict[str, int] = {}

        self.store = Mortal()
        self.restart()

    def restart(self) -> None:
        store: Any = self.store
        self.service = BranchService(store, SETTINGS, clock=self.clock, listener=self.heard)

    def heard(self, event: BranchEvent) -> None:
        if event.kind == "budget_warning":
            assert event.branch.id not in self.warned
            self.warned.append(event.branch.id)
        elif event.kind != "created":
            assert event.branch.id not in self.ended, "exactly one transition closes a branch"
            self.ended[event.branch.id] = event.branch

    def run(self, *doing: Awaitable[Any]) -> list[Any]:
        """Return the results of several actors that act at the same time."""

        async def all_of_them() -> list[Any]:
            return await asyncio.gather(*doing, return_exceptions=True)

        results = self.loop.run_until_complete(all_of_them())
        for each in results:
            assert not isinstance(each, BaseException) or isinstance(
                each, FoldingError | DyingError
            ), each
        return results

    @rule(
        target=branches,
        session=st.sampled_from(SESSIONS),
        budgets=st.lists(st.none() | st.integers(1, 400), min_size=1, max_size=4),
        timeout=st.integers(1, 50),
        at_root=st.booleans(),
    )
    def create(self, session: str, budgets: list[int | None], timeout: int, at_root: bool) -> Any:
        created = self.run(
            *(
                self.service.create(
                    "d",
                    "p",
                    budget=budget,
                    timeout_seconds=timeout,
                    session_id=session,
                    parent_branch_id=ROOT if at_root else None,
                )
                for budget in budgets
            )
        )
        return multiple(*(each.branch for each in created if not isinstance(each, Exception)))

    @rule(target=branches, parent=branches, budget=st.integers(5, 200))
    def nest(self, parent: Branch, budget: int) -> Any:
        [made] = self.run(self.service.create("d", "p", budget=budget, parent_branch_id=parent.id))
        return multiple(*([] if isinstance(made, Exception) else [made.branch]))

    @rule(branch=branches, tokens=st.lists(st.integers(0, 150), min_size=1, max_size=3))
    def charge(self, branch: Branch, tokens: list[int]) -> None:
        self.run(*(self.service.charge(each, branch_id=branch.id) for each in tokens))

    @rule(branch=branches, tokens=st.integers(0, 50))
    def race(self, branch: Branch, tokens: int) -> None:
        self.run(
            self.service.complete("m", branch_id=branch.id, tokens=tokens),
            self.service.charge(150, branch_id=branch.id, partial="half"),
            self.service.force(branch.id, "no longer needed"),
            self.service.expire(),
        )

    @rule(branch=branches)
    def complete(self, branch: Branch) -> None:
        self.run(self.service.complete("m", branch_id=branch.id))

    @rule(seconds=st.integers(1, 40))
    def wait(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @rule()
    def expire(self) -> None:
        self.run(self.service.expire())

    @rule()
    def crash(self) -> None:
        self.store.dies = True
        self.restart()

    @invariant()
    @precondition(lambda self: hasattr(self, "store"))
    def budgets_add_up(self) -> None:
        dies, self.store.dies = self.store.dies, False
        self.loop.run_until_complete(self.check())
        self.store.dies = dies

    async def check(self) -> None:
        open_ones = 0
        for name in SESSIONS:
            session = await self.store.transaction(partial(the_session, name))
            found: list[Branch] = await self.store.branches(name)
            if session is None:
                assert found == []
                continue
            below: dict[str | None, list[Branch]] = {}
            for branch in found:
                below.setdefault(branch.parent_id, []).append(branch)
            for holder in (session, *found):
                children = below.get(None if holder is session else holder.id, [])
                held = sum(each.budget_total for each in children if each.is_open)
                assert holder.budget_reserved == held, "what is reserved is what open ones hold"
                spent = sum(each.budget_used for each in children if not each.is_open)
                assert holder.budget_used >= spent, "what closed ones have used is charged"
                assert isinstance(holder.budget_total, int)
                # The largest reply here is a report of 150 tokens, and the last one a message of
                # 50; each branch below may have exceeded its own budget by one reply.
                late = 200 * (1 + len(found))
                assert holder.budget_used + held <= holder.budget_total + late
            assert session.budget_used == sum(
                each.budget_used for each in below.get(None, []) if not each.is_open
            )
            for branch in found:
                parent = next((one for one in found if one.id == branch.parent_id), None)
                assert parent is None or parent.is_open or not branch.is_open, "no orphans"
                assert branch.depth == (1 if parent is None else parent.depth + 1)
                assert branch.depth <= SETTINGS.max_depth
                assert (branch.completed_at is None) == bool(TRANSITIONS[branch.status])
                if branch.id in self.ended:
                    assert branch == self.ended[branch.id], "what has ended does not change"
            assert session.open == sum(each.status in OPEN for each in found)
            assert session.open <= SETTINGS.max_concurrent_per_session
            open_ones += session.open
        assert open_ones <= SETTINGS.max_concurrent_per_instance
        limit = SETTINGS.max_concurrent_per_instance
        room = await self.store.transaction(lambda rows: rows.count_open(limit - open_ones, limit))
        assert room, "the count of open branches is right"
        more = await self.store.transaction(lambda rows: rows.count_open(1, limit))
        assert not more
        await self.store.transaction(lambda rows: rows.count_open(open_ones - limit))

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.loop.run_until_complete(self.store.close())
        self.loop.close()


TestSchedules = Schedules.TestCase
TestSchedules.settings = examples(40, gate=20, stateful_step_count=30)

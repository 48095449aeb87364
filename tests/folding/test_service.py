"""The folding service over a store in this process: operations on a branch, and refusals."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from anabranch.folding import (
    OPEN,
    ROOT,
    TRANSITIONS,
    Branch,
    BranchEvent,
    BranchService,
    FoldingError,
    FoldingSettings,
    InjectedItem,
    Status,
    TooManyBranchesError,
)
from anabranch.stores import open_branch_store
from anabranch.testing import ManualClock
from tests.folding.hosts import TASK


class Folding:
    """A service whose time and events the test controls."""

    def __init__(self, **settings: Any) -> None:
        self.clock = ManualClock()
        self.events: list[BranchEvent] = []
        self.settings = FoldingSettings(**settings)
        self.store = open_branch_store("memory:")
        self.service = self.restarted()

    def restarted(self, **more: Any) -> BranchService:
        return BranchService(
            self.store, self.settings, clock=self.clock, listener=self.events.append, **more
        )

    async def create(self, **given: Any) -> Branch:
        return (await self.service.create(**{**TASK, **given})).branch

    @property
    def happened(self) -> list[str]:
        return [event.kind for event in self.events]


async def refusal(doing: Any, code: str) -> str:
    with pytest.raises(FoldingError) as caught:
        await doing
    assert caught.value.code == code
    assert str(caught.value).startswith(f"{code}: ")
    return str(caught.value)


# -- from creation to return -----------------------------------------------------------------


async def test_a_branch_begins_with_the_defaults_and_ends_with_its_message() -> None:
    """Excludes two counts of depth (the first is 1), and a duration that starts at the return."""
    folding = Folding()
    created = await folding.service.create(**TASK)
    branch = created.branch
    assert branch.id.startswith("br_")
    assert (branch.status, branch.depth, branch.parent_id) == ("active", 1, None)
    assert (branch.budget_total, branch.timeout_seconds) == (8_192, 300)
    assert branch.budget_used > 0, "its prompt is a part of its context"
    assert created.parent_budget_remaining == 327_680 - 8_192
    inner = await folding.create(parent_branch_id=branch.id)
    assert inner.budget_total == (8_192 - branch.budget_used) // 2, "half of what is left"
    folding.clock.advance(2)
    returned = await folding.service.complete("It is here.", branch_id=branch.id)
    assert returned.branch.result == "It is here."
    assert returned.branch.status == "completed"
    assert returned.branch.completed_at == branch.created_at + 2
    assert returned.memory_queued is False
    assert await folding.service.status(branch_id=branch.id) == returned.branch
    assert folding.happened == ["created", "created", "failed", "completed"]


async def test_the_innermost_branch_is_the_default_as_parent_and_to_return_from() -> None:
    folding = Folding()
    outer = await folding.create()
    inner = await folding.create(session_id=outer.session_id)
    assert (inner.parent_id, inner.depth) == (outer.id, 2)
    first = await folding.service.complete("1", session_id=outer.session_id)
    second = await folding.service.complete("2", session_id=outer.session_id)
    assert [first.branch.id, second.branch.id] == [inner.id, outer.id]
    message = await refusal(folding.service.complete("3", session_id=outer.session_id), "FOLD006")
    assert "branch_create" in message
    assert await folding.service.status(session_id=outer.session_id) is None


async def test_an_explicit_parent_makes_siblings() -> None:
    """Excludes that every branch becomes a child of the deepest one, so that no siblings exist."""
    folding = Folding()
    outer = await folding.create()
    left = await folding.create(parent_branch_id=outer.id)
    right = await folding.create(parent_branch_id=outer.id, session_id=outer.session_id)
    beside = await folding.create(parent_branch_id=ROOT, session_id=outer.session_id)
    assert [left.parent_id, right.parent_id, beside.parent_id] == [outer.id, outer.id, None]
    assert {each.session_id for each in (left, right, beside)} == {outer.session_id}
    assert [each.id for each in await folding.service.branches(outer.session_id)] == [
        outer.id, left.id, right.id, beside.id,
    ]  # fmt: skip


async def test_a_parent_that_returns_closes_its_children_each_with_its_own_record() -> None:
    """Excludes ends without an event: ends that were forced, and failed branches."""
    folding = Folding()
    outer = await folding.create()
    nothing = await folding.create(parent_branch_id=outer.id)
    some = await folding.create(parent_branch_id=outer.id)
    below = await folding.create(parent_branch_id=some.id, budget=1_000)
    await folding.service.charge(5, branch_id=some.id, partial="Half of it")
    await folding.service.complete("done", branch_id=outer.id)

    async def ended(branch: Branch) -> tuple[str, str | None, str]:
        found = await folding.service.status(branch_id=branch.id)
        assert found is not None
        return found.status, found.result, found.error or ""

    assert await ended(nothing) == (
        "failed", None, f"orphaned: its parent {outer.id} was closed (completed)",
    )  # fmt: skip
    assert (await ended(some))[:2] == ("completed", "Half of it")
    assert (await ended(below))[2].startswith(f"orphaned: its parent {some.id}")
    assert folding.happened[-4:] == ["failed", "failed", "forced", "completed"]


async def test_the_record_is_live_and_unused_tokens_are_refunded() -> None:
    """Excludes a record that says 0 tokens until the branch ends."""
    folding = Folding()
    outer = await folding.create(budget=5_000)
    inner = await folding.service.create(
        **TASK, budget=1_000, parent_branch_id=outer.id, inject_memories=False
    )
    assert inner.parent_budget_remaining == 5_000 - 1_000 - outer.budget_used
    await folding.service.charge(300, branch_id=inner.branch.id)
    status = await folding.service.status(branch_id=inner.branch.id)
    assert status is not None
    assert status.budget_used == inner.branch.budget_used + 300
    done = await folding.service.complete("ok", branch_id=inner.branch.id, tokens=0)
    parent = await folding.service.status(branch_id=outer.id)
    assert parent is not None
    assert parent.budget_used == outer.budget_used + done.branch.budget_used
    assert parent.budget_reserved == 0


# -- budgets ---------------------------------------------------------------------------------


async def test_a_used_up_budget_forces_a_return_with_the_present_text() -> None:
    """Excludes that an exhausted branch keeps only its reason and loses its partial result."""
    folding = Folding()
    for partial, status in (("So far so good.", "completed"), (None, "failed")):
        branch = await folding.create(budget=100)
        await folding.service.charge(20, branch_id=branch.id, partial=partial)
        forced = await folding.service.charge(500, branch_id=branch.id)
        assert (forced.status, forced.result) == (status, partial)
        assert forced.error == f"budget exhausted: {forced.budget_used}/100 tokens"
        assert forced.budget_used == branch.budget_used + 520
        message = await refusal(folding.service.complete("late", branch_id=branch.id), "FOLD003")
        assert status in message


async def test_the_parent_is_warned_when_a_child_has_used_its_tokens() -> None:
    folding = Folding()
    outer = await folding.create(budget=1_000)
    inner = await folding.create(budget=900, parent_branch_id=outer.id)
    await folding.service.complete("m", branch_id=inner.id, tokens=850)
    warned = [event.branch.id for event in folding.events if event.kind == "budget_warning"]
    assert warned == [inner.id, outer.id]


async def test_open_requests_of_the_parent_hold_their_maximum() -> None:
    folding = Folding()
    outer = await folding.create(budget=1_000)
    inside = {"parent_branch_id": outer.id, "parent_reserved": 800}
    assert "FOLD008" in await refusal(folding.create(budget=300, **inside), "FOLD008")
    inner = await folding.create(**inside)
    assert inner.budget_total == (1_000 - outer.budget_used - 800) // 2
    parent = await folding.service.status(branch_id=outer.id)
    assert parent is not None
    assert parent.budget_reserved == inner.budget_total, "what requests hold is in no record"


async def test_a_child_whose_budget_its_parent_does_not_have_is_refused() -> None:
    folding = Folding(session_budget=6_000)
    outer = await folding.create(budget=5_000)
    wanted = folding.create(budget=5_000, parent_branch_id=outer.id)
    assert outer.id in await refusal(wanted, "FOLD008")
    beside = folding.create(budget=1_001, parent_branch_id=ROOT, session_id=outer.session_id)
    assert "1000 tokens left" in await refusal(beside, "FOLD008")
    await folding.create(budget=1_000, parent_branch_id=ROOT, session_id=outer.session_id)


async def test_a_parent_that_spends_the_tokens_of_its_child_is_forced_with_it() -> None:
    folding = Folding()
    outer = await folding.create(budget=1_000)
    inner = await folding.create(budget=900, parent_branch_id=outer.id)
    forced = await folding.service.charge(200, branch_id=outer.id, partial="something")
    child = await folding.service.status(branch_id=inner.id)
    assert forced.status == "completed"
    assert child is not None
    assert child.status == "failed"


# -- time ------------------------------------------------------------------------------------


async def test_a_branch_whose_time_is_over_is_closed_by_the_next_operation() -> None:
    """Excludes branches that end with their process, as records in memory alone would."""
    folding = Folding()
    branch = await folding.create(timeout_seconds=10)
    await folding.service.charge(1, branch_id=branch.id, partial="Some of it")
    folding.clock.advance(10)
    after = folding.restarted()
    found = await after.status(branch_id=branch.id)
    assert found is not None
    assert (found.status, found.result) == ("timeout", "Some of it")
    assert found.error == "timeout: the branch had not returned within 10 s"
    late = after.complete("late", branch_id=branch.id)
    await refusal(late, "FOLD003")


async def test_an_operation_that_comes_too_late_is_refused_and_the_branch_closed() -> None:
    folding = Folding()
    branch = await folding.create(timeout_seconds=10)
    folding.clock.advance(11)
    late = folding.service.charge(5, branch_id=branch.id)
    assert "timeout" in await refusal(late, "FOLD003")
    assert folding.happened == ["created", "timeout"]


async def test_a_child_has_no_more_time_than_its_parent() -> None:
    folding = Folding()
    outer = await folding.create(timeout_seconds=10)
    inner = await folding.create(timeout_seconds=500, parent_branch_id=outer.id)
    assert inner.deadline == outer.deadline


async def test_a_timeout_that_is_no_number_is_refused() -> None:
    await refusal(Folding().create(timeout_seconds=float("nan")), "FOLD023")


async def test_a_pass_closes_overdue_branches_and_deletes_old_ones() -> None:
    """Excludes finished branches that are never archived and never deleted."""
    folding = Folding(archive_after_seconds=50, delete_after_seconds=100)
    branch = await folding.create(timeout_seconds=10)
    other = await folding.create(timeout_seconds=60)
    folding.clock.advance(10)
    assert await folding.service.expire() == 1
    assert await folding.service.expire() == 0
    assert [each.id for each in await folding.service.branches(branch.session_id)] == [branch.id]
    folding.clock.advance(50)
    assert await folding.service.branches(branch.session_id) == [], "it is archived"
    assert await folding.service.status(branch_id=branch.id), "and still found by its id"
    folding.clock.advance(51)
    await folding.service.expire()
    gone = folding.service.status(branch_id=branch.id)
    await refusal(gone, "FOLD001")
    assert await folding.service.status(branch_id=other.id)


# -- limits ----------------------------------------------------------------------------------


async def test_a_session_has_no_more_open_branches_than_allowed_at_the_same_time() -> None:
    """Excludes a limit that is checked first and counted later, so that concurrent creations pass it."""
    folding = Folding(max_concurrent_per_session=2)
    outer = await folding.create()
    session = {"session_id": outer.session_id, "parent_branch_id": ROOT}
    results = await asyncio.gather(
        *(folding.create(**session) for _ in range(5)), return_exceptions=True
    )
    assert sum(isinstance(each, TooManyBranchesError) for each in results) == 4
    await folding.service.complete("ok", branch_id=outer.id)
    await folding.create(**session)


async def test_an_instance_has_at_most_the_allowed_open_branches_until_they_expire() -> None:
    folding = Folding(max_concurrent_per_instance=3)
    for _ in range(3):
        await folding.create(timeout_seconds=10)
    assert "instance" in await refusal(folding.create(), "FOLD013")
    folding.clock.advance(10)
    await folding.create()


async def test_a_session_creates_no_more_branches_a_minute_than_allowed() -> None:
    """Excludes a rate that is documented and not enforced."""
    folding = Folding(max_created_per_minute=2)
    first = await folding.create()
    session = {"session_id": first.session_id, "parent_branch_id": ROOT}
    await folding.create(**session)
    message = await refusal(folding.create(**session), "FOLD012")
    assert "in 30 s" in message
    folding.clock.advance(30)
    await folding.create(**session)


async def test_control_characters_are_removed() -> None:
    """Excludes control characters that pass where the documentation says that they are removed."""
    folding = Folding()
    branch = await folding.create(description="a\x1b[31mb\x00", prompt="line\n\tnext\x85")
    assert (branch.description, branch.prompt) == ("a[31mb", "line\n\tnext")


@pytest.mark.parametrize("before", TRANSITIONS)
@pytest.mark.parametrize("after", TRANSITIONS)
def test_only_the_table_decides_the_next_state(before: Status, after: Status) -> None:
    branch = Branch(
        id="br_1", session_id="fs_1", parent_id=None, depth=1, description="d", prompt="p",
        budget_total=1, timeout_seconds=1, deadline=1, created_at=0, status=before,
    )  # fmt: skip
    if after in TRANSITIONS[before]:
        assert branch.to(after) == replace(branch, status=after)
    else:
        with pytest.raises(FoldingError, match="FOLD005"):
            branch.to(after)
    assert branch.is_open == (before in OPEN)


# -- memories and secrets --------------------------------------------------------------------


class Memories:
    """A memory that has two items, and fails where a test says so."""

    def __init__(self, *, fails: bool = False) -> None:
        self.fails = fails
        self.queued: list[Branch] = []
        self.transcripts: list[str] = []

    async def recall(
        self, text: str, *, allowance: int, limit: int, min_confidence: float
    ) -> Sequence[InjectedItem]:
        if self.fails:
            raise OSError("the index is gone")
        assert (text, allowance, limit, min_confidence) == (
            "Find it Look everywhere.",
            200,
            10,
            0.7,
        )
        return [
            InjectedItem(id="m1", title="Large", content="…", tokens=201),
            InjectedItem(id="m2", title="Fits", content="Look below.", tokens=150),
            InjectedItem(id="m3", title="No longer", content="…", tokens=51),
        ]

    async def queue(self, branch: Branch, transcript: str) -> bool:
        if self.fails:
            raise OSError("the index is gone")
        self.queued.append(branch)
        self.transcripts.append(transcript)
        return True


async def test_a_branch_begins_with_memories_that_fit_and_are_charged() -> None:
    """Excludes options that are accepted and ignored: memories at the start, one at the return."""
    folding, memories = Folding(), Memories()
    service = folding.restarted(memory=memories)
    created = await service.create(**TASK, budget=1_000)
    assert [item.id for item in created.injected] == ["m2"]
    assert created.branch.injected_memories == ("m2",)
    assert created.branch.status == "active"
    plain = await service.create(**TASK, budget=1_000, inject_memories=False)
    assert created.branch.budget_used == plain.branch.budget_used + 150
    returned = await service.complete("ok", branch_id=created.branch.id, extract_memory=True)
    assert returned.memory_queued
    assert memories.queued == [returned.branch]
    await service.complete("ok", branch_id=plain.branch.id)
    assert memories.queued == [returned.branch]


async def test_a_host_that_reports_leaves_its_last_report_to_the_memory() -> None:
    memories = Memories()
    service = Folding().restarted(memory=memories)
    for transcript in ("", "All of it."):
        branch = (await service.create(**TASK)).branch
        await service.charge(1, branch_id=branch.id, partial="Half of it.")
        await service.complete(
            "ok", branch_id=branch.id, extract_memory=True, transcript=transcript
        )
    assert memories.transcripts == ["Half of it.", "All of it."]


async def test_a_memory_that_fails_does_not_fail_the_branch() -> None:
    service = Folding().restarted(memory=Memories(fails=True))
    created = await service.create(**TASK)
    assert (created.injected, created.branch.status) == ((), "active")
    returned = await service.complete("ok", branch_id=created.branch.id, extract_memory=True)
    assert returned.memory_queued is False


async def test_secrets_do_not_leave_a_branch() -> None:
    """Excludes that only results are searched: descriptions, prompts and errors are searched as well."""

    async def scrub(text: str) -> str:
        return text.replace("hunter2", "[REDACTED]")

    service = Folding().restarted(scrub=scrub)
    created = await service.create("Use hunter2", "The password is hunter2.")
    branch = created.branch
    assert (branch.description, branch.prompt) == (
        "Use [REDACTED]", "The password is [REDACTED].",
    )  # fmt: skip
    await service.charge(0, branch_id=branch.id, partial="hunter2!")
    forced = await service.force(branch.id, "because of hunter2")
    assert (forced.result, forced.error) == ("[REDACTED]!", "because of [REDACTED]")


async def test_a_listener_that_fails_is_logged_and_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def listen(event: BranchEvent) -> None:
        raise KeyError(event.kind)

    service = BranchService(open_branch_store("memory:"), listener=listen)
    assert (await service.create(**TASK)).branch.status == "active"
    assert "the listener raised an error for the event 'created'" in caplog.text

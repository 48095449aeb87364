"""Learning from finished branches: a branch is judged and distilled once, without duplicate lessons."""

import json
import logging
from typing import Any

import anyio
import pytest

from anabranch.errors import StoreError
from anabranch.memory import (
    Distiller,
    Draft,
    Filter,
    FinishedBranch,
    MemoryStore,
    Provenance,
    QueuedBranch,
    ReasoningBank,
    Scopes,
)
from anabranch.messages import SampleReply, SampleRequest, assistant
from anabranch.models import ModelError
from anabranch.testing import ManualClock

SUCCESS = '{"outcome": "success", "reason": "it works"}'
KEY = "ghp_" + "aB3" * 12


def an_item(content: str, title: str = "Bisecting") -> dict[str, str]:
    return {"title": title, "description": "When a bug appeared lately", "content": content}


def a_branch(branch_id: str = "br_1", **changes: str) -> FinishedBranch:
    fields = {"description": "Find the bug", "prompt": "Look in the parser", "message": "Found it"}
    return FinishedBranch.model_validate({"branch_id": branch_id, **fields, **changes})


class Model:
    """Gives its replies in order; raises a reply that is an error."""

    def __init__(self, *replies: str | Exception) -> None:
        self.replies = list(replies)
        self.requests: list[SampleRequest] = []

    async def sample(self, request: SampleRequest) -> SampleReply:
        self.requests.append(request)
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return SampleReply(content=assistant(reply).content)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1000.0)


@pytest.fixture
def bank(store: MemoryStore, clock: ManualClock) -> ReasoningBank:
    return ReasoningBank(store, scopes=Scopes(project="web"), clock=clock)


async def learned(bank: ReasoningBank) -> list[str]:
    return [memory.content for memory in await bank.store.newest(Filter())]


async def test_a_success_is_judged_and_distilled(bank: ReasoningBank) -> None:
    await bank.queue(a_branch())
    model = Model(SUCCESS, f"Here:\n```json\n{json.dumps([an_item('Halve the range.')])}\n```")

    assert await Distiller(bank, model).learn_next()
    assert not await Distiller(bank, model).learn_next()

    (memory,) = await bank.store.newest(Filter())
    assert memory.content == "Halve the range."
    assert memory.scope == Scopes(project="web").at("project")
    assert memory.task == "Find the bug\nLook in the parser"
    assert memory.provenance == Provenance(source="distilled", branch_id="br_1", outcome="success")
    judged, distilled = model.requests
    assert "You judge" in (judged.system_prompt or "")
    assert "succeed" in (distilled.system_prompt or "")
    assert json.loads(distilled.messages[0].text)["message"] == "Found it"
    assert [item.id for item in (await bank.recall("bug", allowance=500)).items] == [memory.id]


@pytest.mark.parametrize("status", ["failed", "timeout"])
async def test_a_failure_needs_no_judge(bank: ReasoningBank, status: str) -> None:
    await bank.queue(a_branch(status=status))
    model = Model(json.dumps([an_item("Look at the lexer first.")]))

    assert await Distiller(bank, model).learn_next()

    (memory,) = await bank.store.newest(Filter())
    assert memory.provenance.outcome == "failure"
    assert "failed" in (model.requests[0].system_prompt or "")


async def test_a_branchs_claim_of_success_is_not_believed(bank: ReasoningBank) -> None:
    await bank.queue(a_branch())
    model = Model('{"outcome": "failure"}', "[]")

    assert await Distiller(bank, model).learn_next()

    assert "failed" in (model.requests[1].system_prompt or "")
    assert await learned(bank) == []


async def test_a_branch_that_nobody_can_judge_teaches_nothing(bank: ReasoningBank) -> None:
    await bank.queue(a_branch())

    assert await Distiller(bank, Model('{"outcome": "unclear"}')).learn_next()

    assert (await learned(bank), await bank.store.waiting()) == ([], 0)


async def test_a_branch_teaches_three_lessons_at_most_and_bad_ones_are_left_out(
    bank: ReasoningBank,
) -> None:
    await bank.queue(a_branch(status="failed"))
    items = [
        "no item",
        {"title": "x" * 300},
        *(an_item(f"{w} {w}s") for w in ("a1", "b2", "c3", "d4")),
    ]

    assert await Distiller(bank, Model(json.dumps(items))).learn_next()

    assert sorted(await learned(bank)) == ["a1 a1s", "b2 b2s", "c3 c3s"]


async def test_a_lesson_learned_again_confirms_the_known_note(bank: ReasoningBank) -> None:
    """The known lesson gains confidence, and no duplicate is added."""
    for name in ("br_1", "br_2"):
        await bank.queue(a_branch(name, status="failed"))
    model = Model(
        json.dumps([an_item("Halve the range of commits, and test the middle one.")]),
        json.dumps(
            [
                an_item("halve the range of commits and test the middle one!"),
                an_item("Write a test before you look for the cause.", "Reproducing"),
                an_item("Write a test, before you look for the cause!", "Reproducing"),
            ]
        ),
    )
    distiller = Distiller(bank, model)

    assert await distiller.learn_next()
    assert await distiller.learn_next()

    new, known = await bank.store.newest(Filter())
    assert (new.title, new.helpful) == ("Reproducing", 0)
    assert (known.title, known.helpful) == ("Bisecting", 1)


async def test_a_memory_of_another_project_is_no_duplicate(
    bank: ReasoningBank, clock: ManualClock
) -> None:
    other = ReasoningBank(bank.store, scopes=Scopes(project="app"), clock=clock)
    for each in (bank, other):
        await each.queue(a_branch(each.scopes.project, status="failed"))
    distiller = Distiller(bank, Model(*[json.dumps([an_item("Halve the range.")])] * 2))

    assert await distiller.learn_next()
    assert await distiller.learn_next()

    assert {m.scope.name for m in await bank.store.newest(Filter())} == {"web", "app"}


async def test_a_secret_that_a_model_repeats_is_not_stored(bank: ReasoningBank) -> None:
    await bank.queue(a_branch(status="failed"))

    await Distiller(bank, Model(json.dumps([an_item(f"Log in with {KEY}.")]))).learn_next()

    assert await learned(bank) == ["Log in with [REDACTED]."]


async def test_a_failing_branch_is_tried_three_times_with_pauses(
    bank: ReasoningBank, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The retries follow any failure: of the provider, or of the form of the reply."""
    await bank.queue(a_branch())
    distiller = Distiller(bank, Model(ModelError("no network"), "no JSON", "{}"))
    tries: list[bool] = []
    with caplog.at_level(logging.WARNING, "anabranch"):
        for _ in range(4):
            tries.append(await distiller.learn_next())
            tries.append(await distiller.learn_next())
            clock.advance(200.0)

    assert tries == [True, False, True, False, True, False, False, False]
    assert (await learned(bank), await bank.store.waiting()) == ([], 0)
    assert "cannot be learned from: ModelError" in caplog.text


async def test_a_worker_that_has_lost_its_lease_writes_nothing(
    bank: ReasoningBank, clock: ManualClock
) -> None:
    """Another worker has learned from the branch meanwhile; nothing is added twice."""
    await bank.queue(a_branch(status="failed"))
    items = json.dumps([an_item("Halve the range.")])

    class Slow(Model):
        async def sample(self, request: SampleRequest) -> SampleReply:
            clock.advance(10_000.0)
            assert await Distiller(bank, Model(items)).learn_next()
            return await super().sample(request)

    assert await Distiller(
        bank, Slow(json.dumps([an_item("Something else.", "Other")]))
    ).learn_next()

    assert await learned(bank) == ["Halve the range."]


async def test_a_cancelled_worker_returns_its_branch(bank: ReasoningBank) -> None:
    """The next worker need not wait until the lease has ended."""
    await bank.queue(a_branch(status="failed"))
    asked = anyio.Event()

    class Hanging(Model):
        async def sample(self, request: SampleRequest) -> SampleReply:
            asked.set()
            await anyio.sleep_forever()
            raise AssertionError

    async with anyio.create_task_group() as group:
        group.start_soon(Distiller(bank, Hanging()).run)
        await asked.wait()
        group.cancel_scope.cancel()

    assert await Distiller(bank, Model(json.dumps([an_item("Halve the range.")]))).learn_next()
    assert await learned(bank) == ["Halve the range."]


async def test_a_worker_continues_after_its_store_failed(
    bank: ReasoningBank, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    await bank.queue(a_branch(status="failed"))
    asked = anyio.Event()

    class FailsOnce:
        failed = False

        def __getattr__(self, name: str) -> object:
            return getattr(bank.store, name)

        async def lease(self, owner: str, now: float, until: float) -> QueuedBranch | None:
            if not self.failed:
                self.failed = True
                raise StoreError("The store is locked.")
            return await bank.store.lease(owner, now, until)

    class Asked(Model):
        async def sample(self, request: SampleRequest) -> SampleReply:
            asked.set()
            return await super().sample(request)

    failing: MemoryStore = FailsOnce()  # type: ignore[assignment]
    worker = Distiller(ReasoningBank(failing, scopes=bank.scopes, clock=clock), Asked("[]"))
    with caplog.at_level(logging.WARNING, "anabranch"):
        async with anyio.create_task_group() as group:
            group.start_soon(worker.run)
            await anyio.wait_all_tasks_blocked()
            clock.advance(31.0)
            await asked.wait()
            group.cancel_scope.cancel()

    assert "job 'learn from branches' failed" in caplog.text


# -- what is known ---------------------------------------------------------------------------


async def taught(bank: ReasoningBank, *lessons: str, **compared: Any) -> list[tuple[str, int, int]]:
    """Return the known notes after each lesson was learned from a separate branch, the oldest first.

    The model compares the last lesson with the known notes, with the result ``compared``.
    """
    replies: list[str] = []
    for number, content in enumerate(lessons, 1):
        await bank.queue(a_branch(f"br_{number}", status="failed"))
        more = compared if number == len(lessons) else {}
        replies.append(json.dumps([{**an_item(content), **more}]))
    model = Model(*replies)
    assert await Distiller(bank, model).learn_all() == len(lessons)
    assert model.replies == []
    found = await bank.store.newest(Filter())
    return [(each.content, each.helpful, each.unhelpful) for each in reversed(found)]


@pytest.mark.parametrize(
    ("known", "lesson"),
    [
        ("Clear the cache first.", "Do not clear the cache first."),
        ("Clear the cache first.", "Don\u2019t clear the cache first."),
        ("Clear the cache first.", "Never clear the cache first!"),
        ("Always clear the cache first.", "never clear the cache first"),
        ("You can clear the cache.", "You cannot clear the cache."),
        ("Use no cache for such builds.", "Use cache for such builds"),
    ],
)
async def test_an_opposite_lesson_is_learned_and_lowers_the_confidence_of_the_known_note(
    bank: ReasoningBank, known: str, lesson: str
) -> None:
    assert await taught(bank, known, lesson) == [(known, 0, 1), (lesson, 0, 0)]
    given = await bank.recall("clear the cache of builds", allowance=500)
    assert [item.content for item in given.items] == [lesson]


@pytest.mark.parametrize(
    ("known", "lesson"),
    [
        ("Try it three times.", "Try it fifty times."),
        ("For tests, take A; for builds, take B.", "For tests, take B; for builds, take A."),
        ("If it is old, clear it. If new, keep it.", "If it is old, keep it. If new, clear it."),
        ("Wait for 3 s.", "Wait for 30 s."),
        ("Set the offset to 1.", "Set the offset to -1."),
        (
            "Deploy to staging first, then run the tests.",
            "Deploy to production first, then run the tests.",
        ),
        ("Copy from staging to production.", "Copy from production to staging."),
        ("Ask Ann before the release.", "Ask Bo before the release."),
        ("Write the test before the code.", "Write the test after the code."),
        ("Use tabs instead of spaces.", "Use spaces instead of tabs."),
        ("Stop the worker, then migrate.", "Migrate, then stop the worker."),
        ("Check that a == b.", "Check that a != b."),
        ("Run it with the cache.", "Run it without the cache."),
        ("Delete all of the files.", "Delete some of the files."),
    ],
)
async def test_a_difference_in_a_number_a_name_or_an_order_confirms_nothing(
    bank: ReasoningBank, known: str, lesson: str
) -> None:
    assert await taught(bank, known, lesson) == [(known, 0, 0), (lesson, 0, 0)]


@pytest.mark.parametrize(
    ("relation", "votes", "remaining"),
    [
        ("confirms", (1, 0), ["Clear the cache."]),
        ("contradicts", (0, 1), ["Clear the cache.", "Leave caches as they are."]),
        ("replaces", (0, 0), ["Leave caches as they are."]),
        ("new", (0, 0), ["Clear the cache.", "Leave caches as they are."]),
    ],
)
async def test_the_model_decides_how_a_lesson_relates_to_known_notes(
    bank: ReasoningBank, relation: str, votes: tuple[int, int], remaining: list[str]
) -> None:
    lessons = ["Clear the cache.", "Leave caches as they are."]
    found = await taught(bank, *lessons, relation=relation, known=1)
    assert [content for content, *_ in found] == remaining
    if remaining[0] == lessons[0]:
        assert found[0][1:] == votes


async def test_the_model_reads_known_notes_as_data(bank: ReasoningBank) -> None:
    """Notes given to the branch come first, even without a shared word; other callers' notes are absent."""
    given = await bank.record(Draft(title="Given", description="Other", content="Other"))
    await bank.record(Draft(title="Parsers", description="d", content="Look in the parser."))
    other = await bank.of("bo").record(Draft(title="Bo's", description="d", content="Parser"))
    unknown = ("mem_unknown", other.id, given.id)
    await bank.queue(a_branch(status="failed").model_copy(update={"injected": unknown}))
    model = Model("[]")

    assert await Distiller(bank, model).learn_next()

    record = json.loads(model.requests[0].messages[0].text)
    assert [(each["number"], each["title"]) for each in record["known"]] == [
        (1, "Given"),
        (2, "Parsers"),
    ]
    assert '"known": N' in (model.requests[0].system_prompt or "")


@pytest.mark.parametrize(
    "compared",
    [
        {"relation": "replaces", "known": 2},
        {"relation": "replaces", "known": 0},
        {"relation": "replaces", "known": "all"},
        {"relation": "replaces"},
        {"relation": "forgets", "known": 1},
        {"relation": None, "known": [1]},
    ],
    ids=str,
)
async def test_an_invalid_comparison_is_ignored(
    bank: ReasoningBank, compared: dict[str, Any]
) -> None:
    """The lesson is then compared by its words, and no note is lost."""
    found = await taught(bank, "Clear it.", "Wait.", **compared)
    assert found == [("Clear it.", 0, 0), ("Wait.", 0, 0)]


async def test_a_shared_note_is_not_replaced_by_one_callers_branch(
    store: MemoryStore, clock: ManualClock
) -> None:
    """The branch gives the caller's vote on the note, and the lesson belongs to the caller."""
    scopes = Scopes(project="web")
    shared = await ReasoningBank(store, scopes=scopes, clock=clock).record(
        Draft(title="Bugs", description="Find the bug", content="Clear the cache.")
    )
    bank = ReasoningBank(store, scopes=scopes, clock=clock).of("ann")
    found = await taught(bank, "Leave it.", relation="replaces", known=1)
    assert found == [("Clear the cache.", 0, 1), ("Leave it.", 0, 0)]
    assert [each.scope.level for each in await store.newest(Filter())] == ["user", "project"]
    assert shared.scope == Scopes(project="web").at("project")

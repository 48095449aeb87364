"""Learning from finished branches: judged, distilled, without duplicates, and once."""

import json
import logging
from collections.abc import AsyncIterator

import anyio
import pytest

from anabranch.errors import StoreError
from anabranch.memory import (
    Distiller,
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
from anabranch.stores import open_memory_store
from anabranch.testing import ManualClock

SUCCESS = '{"outcome": "success", "reason": "it works"}'
KEY = "ghp_" + "aB3" * 12


def an_item(content: str, title: str = "Bisecting") -> dict[str, str]:
    return {"title": title, "description": "When a bug appeared lately", "content": content}


def a_branch(branch_id: str = "br_1", **changes: str) -> FinishedBranch:
    fields = {"description": "Find the bug", "prompt": "Look in the parser", "message": "Found it"}
    return FinishedBranch.model_validate({"branch_id": branch_id, **fields, **changes})


class Model:
    """Gives its replies in order; one that is an error is raised."""

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
async def store() -> AsyncIterator[MemoryStore]:
    store = open_memory_store("memory:")
    yield store
    await store.close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1000.0)


@pytest.fixture
def bank(store: MemoryStore, clock: ManualClock) -> ReasoningBank:
    return ReasoningBank(store, scopes=Scopes(project="web"), clock=clock)


async def learned(store: MemoryStore) -> list[str]:
    return [memory.content for memory in await store.newest(Filter())]


async def test_a_success_is_judged_and_distilled(bank: ReasoningBank, store: MemoryStore) -> None:
    await bank.queue(a_branch())
    model = Model(SUCCESS, f"Here:\n```json\n{json.dumps([an_item('Halve the range.')])}\n```")

    assert await Distiller(bank, model).learn_next()
    assert not await Distiller(bank, model).learn_next()

    (memory,) = await store.newest(Filter())
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
async def test_a_failure_needs_no_judge(
    bank: ReasoningBank, store: MemoryStore, status: str
) -> None:
    await bank.queue(a_branch(status=status))
    model = Model(json.dumps([an_item("Look at the lexer first.")]))

    assert await Distiller(bank, model).learn_next()

    (memory,) = await store.newest(Filter())
    assert memory.provenance.outcome == "failure"
    assert "failed" in (model.requests[0].system_prompt or "")


async def test_what_is_claimed_is_not_believed(bank: ReasoningBank, store: MemoryStore) -> None:
    await bank.queue(a_branch())
    model = Model('{"outcome": "failure"}', "[]")

    assert await Distiller(bank, model).learn_next()

    assert "failed" in (model.requests[1].system_prompt or "")
    assert await learned(store) == []


async def test_nothing_is_learned_from_what_no_one_can_judge(
    bank: ReasoningBank, store: MemoryStore
) -> None:
    await bank.queue(a_branch())

    assert await Distiller(bank, Model('{"outcome": "unclear"}')).learn_next()

    assert (await learned(store), await store.waiting()) == ([], 0)


async def test_a_branch_teaches_three_lessons_at_most_and_bad_ones_are_left_out(
    bank: ReasoningBank, store: MemoryStore
) -> None:
    await bank.queue(a_branch(status="failed"))
    items = [
        "no item",
        {"title": "x" * 300},
        *(an_item(f"{w} {w}s") for w in ("a1", "b2", "c3", "d4")),
    ]

    assert await Distiller(bank, Model(json.dumps(items))).learn_next()

    assert sorted(await learned(store)) == ["a1 a1s", "b2 b2s", "c3 c3s"]


async def test_what_is_learned_again_is_confirmed(bank: ReasoningBank, store: MemoryStore) -> None:
    """No duplicate, but more confidence in the one that is there."""
    for name in ("br_1", "br_2"):
        await bank.queue(a_branch(name, status="failed"))
    model = Model(
        json.dumps([an_item("Halve the range of commits, and test the middle one.")]),
        json.dumps(
            [
                an_item("Test the middle one, and halve the range of commits"),
                an_item("Write a test before you look for the cause.", "Reproducing"),
                an_item("Write a test, before you look for the cause!", "Reproducing"),
            ]
        ),
    )
    distiller = Distiller(bank, model)

    assert await distiller.learn_next()
    assert await distiller.learn_next()

    new, known = await store.newest(Filter())
    assert (new.title, new.helpful) == ("Reproducing", 0)
    assert (known.title, known.helpful) == ("Bisecting", 1)


async def test_another_projects_memory_is_no_duplicate(
    bank: ReasoningBank, store: MemoryStore, clock: ManualClock
) -> None:
    other = ReasoningBank(store, scopes=Scopes(project="app"), clock=clock)
    for each in (bank, other):
        await each.queue(a_branch(each.scopes.project, status="failed"))
    distiller = Distiller(bank, Model(*[json.dumps([an_item("Halve the range.")])] * 2))

    assert await distiller.learn_next()
    assert await distiller.learn_next()

    assert {m.scope.name for m in await store.newest(Filter())} == {"web", "app"}


async def test_a_secret_that_a_model_repeats_is_not_stored(
    bank: ReasoningBank, store: MemoryStore
) -> None:
    await bank.queue(a_branch(status="failed"))

    await Distiller(bank, Model(json.dumps([an_item(f"Log in with {KEY}.")]))).learn_next()

    assert await learned(store) == ["Log in with [REDACTED]."]


async def test_a_branch_is_tried_three_times_with_pauses(
    bank: ReasoningBank, store: MemoryStore, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever fails: the provider, or the form of the reply."""
    await bank.queue(a_branch())
    distiller = Distiller(bank, Model(ModelError("no network"), "no JSON", "{}"))
    tries: list[bool] = []
    with caplog.at_level(logging.WARNING, "anabranch"):
        for _ in range(4):
            tries.append(await distiller.learn_next())
            tries.append(await distiller.learn_next())
            clock.advance(200.0)

    assert tries == [True, False, True, False, True, False, False, False]
    assert (await learned(store), await store.waiting()) == ([], 0)
    assert "cannot be learned from: ModelError" in caplog.text


async def test_a_worker_that_has_lost_its_lease_writes_nothing(
    bank: ReasoningBank, store: MemoryStore, clock: ManualClock
) -> None:
    """Another has learned from the branch meanwhile; nothing is added twice."""
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

    assert await learned(store) == ["Halve the range."]


async def test_a_worker_that_is_cancelled_hands_its_branch_back(
    bank: ReasoningBank, store: MemoryStore
) -> None:
    """The next one need not wait until the lease has ended."""
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
    assert await learned(store) == ["Halve the range."]


async def test_a_worker_goes_on_after_its_store_failed(
    bank: ReasoningBank, store: MemoryStore, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    await bank.queue(a_branch(status="failed"))
    asked = anyio.Event()

    class FailsOnce:
        failed = False

        def __getattr__(self, name: str) -> object:
            return getattr(store, name)

        async def lease(self, owner: str, now: float, until: float) -> QueuedBranch | None:
            if not self.failed:
                self.failed = True
                raise StoreError("The store is locked.")
            return await store.lease(owner, now, until)

    class Asked(Model):
        async def sample(self, request: SampleRequest) -> SampleReply:
            asked.set()
            return await super().sample(request)

    failing: MemoryStore = FailsOnce()  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    worker = Distiller(ReasoningBank(failing, scopes=bank.scopes, clock=clock), Asked("[]"))
    with caplog.at_level(logging.WARNING, "anabranch"):
        async with anyio.create_task_group() as group:
            group.start_soon(worker.run)
            await anyio.wait_all_tasks_blocked()
            clock.advance(31.0)
            await asked.wait()
            group.cancel_scope.cancel()

    assert "queue cannot be read" in caplog.text

"""A memory that hangs delays no branch, for any kind of object and any reaction to cancellation."""

import asyncio
import logging
import threading
from collections.abc import Sequence
from typing import Any

import anyio
import anyio.to_thread
import pytest

from anabranch.folding import (
    Branch,
    BranchMemory,
    BranchService,
    FoldingSettings,
    InjectedItem,
    MemoryOfCallers,
)
from anabranch.folding import _memory as injection
from anabranch.stores import open_branch_store
from anabranch.testing import ManualClock
from tests.folding.hosts import TASK
from tests.patience import PATIENCE

SOON = FoldingSettings(memory_timeout_seconds=0.02)
ITEM = InjectedItem(id="m1", title="Doors", content="Knock.", tokens=9, scope="team")


class Hangs:
    """Waits for ever; a cancellation ends the wait."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.over = asyncio.Event()
        self.asked = 0

    async def wait(self) -> None:
        await self.over.wait()

    async def recall(self, text: str, **more: Any) -> Sequence[InjectedItem]:
        self.asked += 1
        self.began.set()
        await self.wait()
        return [ITEM]

    async def queue(self, branch: Branch, transcript: str) -> bool:
        self.asked += 1
        await self.wait()
        return True


class SwallowsCancellation(Hangs):
    async def wait(self) -> None:
        while not self.over.is_set():
            try:
                await self.over.wait()
            except asyncio.CancelledError:
                continue


class Shielded(Hangs):
    async def wait(self) -> None:
        with anyio.CancelScope(shield=True):
            await self.over.wait()


class InAThread(Hangs):
    """Waits in a thread, like a database client without an asynchronous interface."""

    def __init__(self) -> None:
        super().__init__()
        self.freed = threading.Event()

    async def wait(self) -> None:
        await anyio.to_thread.run_sync(self.freed.wait)


def end(memory: Hangs) -> None:
    memory.over.set()
    if isinstance(memory, InAThread):
        memory.freed.set()


async def left_alone(service: BranchService) -> None:
    """Wait until no request to the memory is running."""
    with anyio.fail_after(PATIENCE):
        while hanging := set(service._injection._hanging):
            await asyncio.wait(hanging)


@pytest.mark.parametrize("kind", [Hangs, SwallowsCancellation, Shielded, InAThread])
async def test_a_branch_starts_and_ends_while_the_memory_hangs(
    kind: type[Hangs], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(injection, "LEARNING", 0.02)
    memory = kind()
    service = BranchService(open_branch_store("memory:"), settings=SOON, memory=memory)
    try:
        with anyio.fail_after(PATIENCE), caplog.at_level(logging.ERROR, "anabranch.folding"):
            created = await service.create(**TASK)
            assert (created.injected, created.branch.status) == ((), "active")
            returned = await service.complete(
                "ok", branch_id=created.branch.id, extract_memory=True
            )
            assert returned.memory_queued is False
    finally:
        end(memory)
    assert "has not answered within 0.02 s" in caplog.text


async def test_a_creation_does_not_wait_for_learning_from_expired_branches() -> None:
    clock, memory = ManualClock(), Hangs()
    service = BranchService(open_branch_store("memory:"), settings=SOON, memory=memory, clock=clock)
    old = (await service.create(**TASK, timeout_seconds=1, extract_memory=True)).branch
    clock.advance(2)
    with anyio.fail_after(injection.LEARNING / 2):
        await service.create(**TASK)
        found = await service.status(branch_id=old.id)
        assert found is not None
        assert found.status == "timeout"
    end(memory)
    await service.expire()
    assert memory.asked == 3  # for two requests, and for one


async def test_a_hanging_memory_gets_no_request_until_it_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The number of unfinished requests stays bounded, over the views of several callers."""
    monkeypatch.setattr(injection, "HANGING", 3)
    memory = SwallowsCancellation()
    service = BranchService(open_branch_store("memory:"), settings=SOON, memory=memory)
    for number in range(6):
        await service.of(f"caller {number}").create(**TASK)
    assert memory.asked == 3
    memory.over.set()
    await left_alone(service)
    assert (await service.create(**TASK)).injected == [ITEM]


async def test_a_cancelled_creation_ends_its_request_to_the_memory() -> None:
    memory = Hangs()
    service = BranchService(open_branch_store("memory:"), memory=memory)
    creating = asyncio.ensure_future(service.create(**TASK))
    await memory.began.wait()
    creating.cancel()
    with pytest.raises(asyncio.CancelledError):
        await creating
    await left_alone(service)


class Fails:
    """Has a memory for each caller, and fails to return one."""

    def of(self, principal: str | None) -> BranchMemory:
        raise LookupError(principal)


class Callers:
    def __init__(self) -> None:
        self.asked: list[str | None] = []

    def of(self, principal: str | None) -> BranchMemory:
        self.asked.append(principal)
        memory = Hangs()
        memory.over.set()
        return memory


async def test_each_caller_has_a_separate_memory() -> None:
    memory = Callers()
    service = BranchService(open_branch_store("memory:"), memory=memory)
    for view in (service, service.of(""), service.of("ann"), service.of("bo")):
        created = await view.create(**TASK)
        assert created.injected == [ITEM]
        await view.complete("ok", branch_id=created.branch.id, extract_memory=True)
    assert memory.asked == [None, None, None, None, "ann", "ann", "bo", "bo"]


async def test_a_branch_starts_when_its_callers_memory_cannot_be_found() -> None:
    failing: MemoryOfCallers = Fails()
    service = BranchService(open_branch_store("memory:"), memory=failing)
    assert (await service.of("ann").create(**TASK)).injected == ()

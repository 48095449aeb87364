"""A chat process learns from queued branches if it also works on runs."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from anabranch import Limits
from anabranch.agents import TurnLimits
from anabranch.cli._chat_parts import ChatParts, WithoutModel
from anabranch.engines import InProcessEngine
from anabranch.memory import MemoryStore, QueuedBranch, ReasoningBank
from anabranch.messages import SampleReply, SampleRequest
from anabranch.stores import open_memory_store, open_stores
from anabranch.testing import ManualClock


class Process:
    """The memory of one process: a view of the shared store, with this process's requests."""

    def __init__(self, store: MemoryStore, clock: ManualClock) -> None:
        self.looks = 0
        self._store = store
        self.bank = ReasoningBank(self, clock=clock)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def lease(self, owner: str, now: float, until: float) -> QueuedBranch | None:
        self.looks += 1
        return await self._store.lease(owner, now, until)

    async def close(self) -> None:
        """Do nothing: the last process closes the memory."""


class Model:
    async def sample(self, request: SampleRequest) -> SampleReply:
        raise AssertionError


async def until(condition: Callable[[], bool], clock: ManualClock) -> None:
    while not condition():
        await asyncio.sleep(0)
        clock.advance(1.0)


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    store = open_memory_store("memory:")
    yield store
    await store.close()


@pytest.mark.parametrize(("works", "looks"), [(True, 1), (False, 0)])
async def test_a_process_that_leaves_runs_to_workers_does_not_learn(
    store: MemoryStore, works: bool, looks: int
) -> None:
    clock = ManualClock(1000.0)
    process = Process(store, clock)
    calls, trees = open_stores("memory:")
    parts = ChatParts(
        tools=[],
        model=WithoutModel(),
        calls=calls,
        trees=trees,
        engine=InProcessEngine(clock),
        bank=process.bank,
        memory=True,
        learner=Model(),
        limits=TurnLimits(),
        tool_limits=Limits(),
        version=None,
    )
    async with parts.open(works=works):
        await store.waiting()  # after this the other process would have looked
        await until(lambda: process.looks >= looks, clock)
    assert process.looks == looks
    await calls.close()

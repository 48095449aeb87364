"""Two workers end at the same time, and each votes on a memory that the other replaces."""

from functools import partial

import anyio

from anabranch.memory import (
    Filter,
    FinishedBranch,
    Learned,
    Memory,
    MemoryStore,
    QueuedBranch,
    Scope,
    Scopes,
)
from anabranch.stores import open_memory_store
from tests.patience import PATIENCE
from tests.suites.expectations import opened

ROUNDS = 10


def note(name: str) -> Memory:
    scope = Scope(name="ours")
    return Memory(title=name, description="d", content=name, id=name, scope=scope, created_at=100.0)


async def lease(store: MemoryStore, worker: str) -> None:
    branch = FinishedBranch(branch_id=f"of {worker}", description="Look it up")
    await store.queue(QueuedBranch(branch=branch, scopes=Scopes(), queued_at=100.0))
    assert await store.lease(worker, 100.0, 200.0)


async def test_two_workers_that_replace_each_others_memories_both_finish(url: str) -> None:
    """On Postgres, each worker locks the rows in the same order. Otherwise the two would deadlock."""
    open_store = partial(open_memory_store, url)
    ended: list[bool] = []

    async def end(store: MemoryStore, name: str, other: str) -> None:
        learned = Learned(replaced=[name], confirmed=[other], voter=name)
        ended.append(await store.finish(f"of {name}", name, learned))

    async with opened(open_store) as one, opened(open_store) as two:
        for number in range(ROUNDS):
            left, right = f"{number} left", f"{number} right"
            await one.add([note(left), note(right)])
            await lease(one, left)
            await lease(two, right)
            with anyio.fail_after(PATIENCE):
                async with anyio.create_task_group() as group:
                    group.start_soon(end, one, left, right)
                    group.start_soon(end, two, right, left)
        assert await one.newest(Filter()) == []
    assert ended == [True] * 2 * ROUNDS

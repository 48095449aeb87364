"""Appends made at the same time are combined into one write, and fail one by one."""

import asyncio
from collections.abc import Sequence

import anyio
import pytest

from anabranch.agents._append_queue import AppendQueue
from anabranch.agents._gather_structured import gather_structured
from anabranch.errors import StoreError
from anabranch.tree import Node, Ref, RefusedError, Result, Thread
from tests.agents.memory import MemoryTrees
from tests.patience import PATIENCE


class Slow(MemoryTrees):
    """A store that takes its time, and counts its writes."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[list[str]] = []
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()

    async def append(
        self, nodes: Sequence[Node], *, results: Sequence[Result] = (), refs: Sequence[Ref] = ()
    ) -> None:
        self.writes.append([node.id for node in nodes])
        self.begun.set()
        await self.go_on.wait()
        await super().append(nodes, results=results, refs=refs)


def a_node(name: str, parent: str | None = None) -> Node:
    return Node(name, "t", parent, "user", (), 0.0)


async def a_store() -> Slow:
    store = Slow()
    await store.create_thread(Thread("t", 0.0))
    return store


async def test_appends_that_wait_are_written_at_once() -> None:
    store = await a_store()
    appends = AppendQueue(store)
    writing = asyncio.gather(*(appends.append([a_node(name)]) for name in "abcd"))
    with anyio.fail_after(PATIENCE):
        await store.begun.wait()
        late = asyncio.gather(*(appends.append([a_node(name)]) for name in "efg"))
        await asyncio.sleep(0)
        store.go_on.set()
        await writing
        await late
    assert store.writes == [list("abcd"), list("efg")]
    assert len((await store.tree("t")).nodes) == 7


async def test_an_append_that_is_refused_fails_alone() -> None:
    store = await a_store()
    store.go_on.set()
    appends = AppendQueue(store)
    nodes = [a_node("a"), a_node("b", "nowhere"), a_node("c")]
    done = await asyncio.gather(*(appends.append([node]) for node in nodes), return_exceptions=True)
    assert [type(each) for each in done] == [type(None), RefusedError, type(None)]
    assert {node.id for node in (await store.tree("t")).nodes} == {"a", "c"}
    await appends.append([a_node("d", "a")])
    assert len((await store.tree("t")).nodes) == 3


async def test_a_store_that_cannot_write_is_tried_once_for_a_batch() -> None:
    """Each further attempt would wait for a locked store all over again."""

    class Locked(Slow):
        async def append(
            self, nodes: Sequence[Node], *, results: Sequence[Result] = (), refs: Sequence[Ref] = ()
        ) -> None:
            self.writes.append([node.id for node in nodes])
            raise StoreError("It is locked.")

    store = Locked()
    appends = AppendQueue(store)
    for names in ("a", "bcd"):
        done = await asyncio.gather(
            *(appends.append([a_node(name)]) for name in names), return_exceptions=True
        )
        assert [type(each) for each in done] == [StoreError] * len(names)
    assert store.writes == [["a"], ["b", "c", "d"]]


async def test_a_single_refused_append_is_not_tried_again() -> None:
    store = await a_store()
    store.go_on.set()
    with pytest.raises(RefusedError):
        await AppendQueue(store).append([a_node("a", "nowhere")])
    assert store.writes == [["a"]]


async def test_a_cancelled_append_ends_when_it_is_written() -> None:
    store = await a_store()
    appends = AppendQueue(store)
    tasks = [asyncio.create_task(appends.append([a_node(name)])) for name in "ab"]
    with anyio.fail_after(PATIENCE):
        await store.begun.wait()
        for task in tasks:
            task.cancel()
        await asyncio.sleep(0)
        assert not any(task.done() for task in tasks)
        store.go_on.set()
        await asyncio.wait(tasks)
    assert all(task.cancelled() for task in tasks)
    assert len((await store.tree("t")).nodes) == 2


async def test_several_jobs_give_their_values_in_order_or_one_error() -> None:
    first = asyncio.Event()
    ended: list[str] = []

    async def waiting() -> str:
        await first.wait()
        return "a"

    async def setting() -> str:
        first.set()
        return "b"

    async def failing() -> str:
        raise StoreError("broken")

    async def forever() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("forever")
        return "never"

    with anyio.fail_after(PATIENCE):
        assert await gather_structured([waiting, setting]) == ["a", "b"]
        with pytest.raises(StoreError, match="broken"):
            await gather_structured([forever, failing])
    assert ended == ["forever"]

"""Checks of stores of conversations that several threads and processes share."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anyio

from anabranch.errors import StoreError
from anabranch.tree import HEAD, Ref, TreeStore
from tests.suites.child_processes import in_processes, in_threads, killed_in_mid_work
from tests.suites.expectations import expect, opened, yes
from tests.suites.tree_samples import (
    OpenTreeStore,
    TreeStoreCheck,
    a_node,
    a_result,
    a_thread,
    calls_tool,
)

_TURNS = 25
_ENOUGH = 10


async def a_thread_outlives_its_store(open_store: OpenTreeStore) -> None:
    """All data of a thread are there when the store is opened again."""
    async with opened(open_store) as store:
        await _begin(store)
        held = a_result("b", "wait", pending="done")
        await store.append([a_node("c", "b", "branch")], results=[held], refs=[Ref(HEAD, "c")])
        before = await store.tree("t")
    async with opened(open_store) as store:
        expect(await store.tree("t"), before, "the tree is there")
        await store.append([a_node("d", "b")])
        expect([node.id for node in await store.children("b")], ["c", "d"], "it can be continued")


async def a_tree_store_continues_appends_of_another_store(open_store: OpenTreeStore) -> None:
    """Two open stores of the same data share every write."""
    async with opened(open_store) as one, opened(open_store) as two:
        await _begin(one)
        await two.append([a_node("c", "b")], refs=[Ref(HEAD, "c")])
        await one.append([a_node("d", "c")], results=[a_result("b", "1")], refs=[Ref(HEAD, "d")])
        expect(await two.tree("t"), await one.tree("t"), "both read the same")
        expect([node.id for node in (await two.path("d")).nodes], list("abcd"), "of both")


async def appenders_to_one_thread_do_not_deadlock(open_store: OpenTreeStore) -> None:
    """Two writers of the same results and refs in opposite orders both finish."""

    async def work(store: TreeStore, name: str, direction: int) -> None:
        for number in range(_TURNS):
            held = [a_result(node, name, pending=name) for node in "bcd"][::direction]
            refs = [Ref(label, "b") for label in ("x", "y", "z")][::direction]
            nodes = [a_node(f"{name} {number} {parent}", parent) for parent in "bcd"[::direction]]
            await store.append(nodes, results=held, refs=refs)
            await store.append([], results=held[::-1])

    async with opened(open_store) as one, opened(open_store) as two:
        await _begin(one)
        await one.append([a_node("c", "b"), a_node("d", "c")])
        async with anyio.create_task_group() as group:
            group.start_soon(work, one, "one", 1)
            group.start_soon(work, two, "two", -1)
        expect(len((await one.tree("t")).nodes), 4 + 6 * _TURNS, "no node is lost")


async def no_node_remains_below_a_deleted_node(open_store: OpenTreeStore) -> None:
    """One client deletes subtrees while another continues them: no node loses its parent."""

    async def grow(store: TreeStore) -> None:
        for number in range(_TURNS):
            with suppress(StoreError):  # the node is being deleted meanwhile
                await store.append([a_node(f"{number}.x", f"{number}"), a_node(f"{number}.y", "b")])

    async with opened(open_store) as one, opened(open_store) as two:
        await _begin(one)
        await one.append([a_node(f"{number}", "b") for number in range(_TURNS)])
        async with anyio.create_task_group() as group:
            group.start_soon(grow, one)
            for number in range(_TURNS):
                await two.delete_subtree(f"{number}")
        left = {node.id for node in (await one.tree("t")).nodes}
        expect([name for name in left if name.endswith("x")], [], "nothing is below")
        expect([name for name in left if name.isdecimal()], [], "all deleted nodes are gone")


async def appenders_in_several_threads_lose_nothing(open_store: OpenTreeStore) -> None:
    """Each thread has an event loop and a store."""
    names = [f"thread {number}" for number in range(4)]
    await in_threads(_talk, open_store, names)
    await _judge(open_store, names)


async def appenders_in_several_processes_lose_nothing(open_store: OpenTreeStore) -> None:
    """The processes also race to set up a new store."""
    names = [f"process {number}" for number in range(3)]
    await in_processes(_talk, open_store, names)
    await _judge(open_store, names)


async def appended_events_survive_a_kill(open_store: OpenTreeStore) -> None:
    """A writer is killed while it writes: every acknowledged append is complete, and no append is partial."""
    async with opened(open_store) as store:
        await _begin(store)
    acknowledged = await killed_in_mid_work(
        _append_until_killed, open_store, "killed", after=_ENOUGH
    )
    async with opened(open_store) as store:
        tree = await store.tree("t")
        halves = [node.id for node in tree.nodes[2:]]
        wanted = [f"{number}.{half}" for number in range(len(halves) // 2) for half in "ab"]
        expect(halves, wanted, "in the order of appending, whole and without a gap")
        yes(acknowledged < len(halves) // 2, f"append {acknowledged} had been acknowledged")
        expect(tree.refs[HEAD], halves[-1], "the head is where the last append left it")
        await store.append([a_node("next life", halves[-1])])


async def _begin(store: TreeStore) -> None:
    await store.create_thread(a_thread())
    await store.append([a_node("a"), a_node("b", "a", "assistant", calls_tool("use"))])


async def _talk(open_store: OpenTreeStore, name: str) -> None:
    """Append a line of nodes to the thread, which another client may be creating."""
    async with opened(open_store) as store:
        with suppress(StoreError):  # another client created the thread first
            await store.create_thread(a_thread())
        tip: str | None = None
        for number in range(_TURNS):
            node = a_node(f"{name} {number}", tip, "user" if tip is None else "assistant")
            result = a_result(node.id, name)
            await store.append([node], results=[result], refs=[Ref(HEAD, node.id)])
            tip = node.id


async def _judge(open_store: OpenTreeStore, names: list[str]) -> None:
    async with opened(open_store) as store:
        tree = await store.tree("t")
        expect(len(tree.nodes), _TURNS * len(names), "no node is lost")
        expect(len(tree.results), _TURNS * len(names), "no result is lost")
        for name in names:
            path = await store.path(f"{name} {_TURNS - 1}")
            wanted = [f"{name} {number}" for number in range(_TURNS)]
            expect([node.id for node in path.nodes], wanted, "each line is its writer's own")
        last = {f"{name} {_TURNS - 1}" for name in names}
        yes(tree.refs[HEAD] in last, "the head is where the last of them left it")


async def _append_until_killed(
    open_store: OpenTreeStore, _: str, report: Callable[[Any], None]
) -> None:
    async with opened(open_store) as store:
        tip, number = "b", 0
        while True:
            nodes = [a_node(f"{number}.a", tip), a_node(f"{number}.b", f"{number}.a")]
            await store.append(nodes, refs=[Ref(HEAD, nodes[-1].id)])
            report(number)
            tip, number = nodes[-1].id, number + 1


SHARED_TREE_STORE_CHECKS: tuple[TreeStoreCheck, ...] = (
    a_thread_outlives_its_store,
    a_tree_store_continues_appends_of_another_store,
    appenders_to_one_thread_do_not_deadlock,
    no_node_remains_below_a_deleted_node,
    appenders_in_several_threads_lose_nothing,
    appenders_in_several_processes_lose_nothing,
    appended_events_survive_a_kill,
)
"""The checks that open a store several times over the same data."""

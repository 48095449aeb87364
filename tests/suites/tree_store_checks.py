"""The suite for stores of conversations: one check for each promise of ``TreeStore``."""

from dataclasses import replace

import anyio

from anabranch.messages import ToolUseBlock
from anabranch.tree import Path, Ref, RefusedError, Result
from tests.suites.expectations import TEXTS, expect, opened, refused, yes
from tests.suites.tree_programs import TREE_PROGRAM_CHECKS
from tests.suites.tree_samples import (
    OpenTreeStore,
    TreeStoreCheck,
    a_node,
    a_result,
    a_thread,
    begin_caller,
    ids_of,
    says,
)

_LONG = 3000
"""So long that a recursion over the generations would fail."""


async def a_misplaced_node_is_refused(open_store: OpenTreeStore) -> None:
    """The store refuses a node with a missing thread or parent, a used id, or a kind in a wrong place."""
    async with opened(open_store) as store:
        await begin_caller(store)
        await store.create_thread(a_thread("other"))
        await store.append([a_node("theirs", thread_id="other")])
        for why, nodes in {
            "there is no such thread": [a_node("c", thread_id="unknown")],
            "there is no such parent": [a_node("c", "unknown")],
            "the parent comes later": [a_node("c", "d"), a_node("d", "b")],
            "the parent is another thread's": [a_node("c", "theirs")],
            "the new parent is another thread's": [
                a_node("c", thread_id="other"),
                a_node("d", "c"),
            ],
            "the id is taken": [a_node("b", "a")],
            "the id is another thread's": [a_node("theirs", "a")],
            "the id is given twice": [a_node("c", "b"), a_node("c", "b")],
            "only a user begins": [a_node("c", None, "assistant")],
            "nothing was called there": [a_node("c", "a", "branch")],
            "nothing was called there either": [a_node("c", "b"), a_node("d", "c", "branch")],
            "below one of two": [a_node("c", "b", "branch"), a_node("d", "a", "branch")],
        }.items():
            await refused(store.append(nodes), why, RefusedError)
            expect(await store.node("c"), None, why)
        expect(ids_of((await store.tree("t")).nodes), "a b", "nothing was added")
        expect((await store.node("b") or a_node("")).kind, "assistant", "nothing was overwritten")


async def a_path_may_be_long(open_store: OpenTreeStore) -> None:
    """A path may have thousands of generations."""
    async with opened(open_store) as store:
        await store.create_thread(a_thread())
        names = [f"node {number}" for number in range(_LONG)]
        parents = [None, *names]
        await store.append([a_node(*pair) for pair in zip(names, parents, strict=False)])
        found = [node.id for node in (await store.path(names[-1])).nodes]
        yes(found == names, "all are there, in order")
        yes([node.id for node in (await store.tree("t")).nodes] == names, "so is the tree")
        expect(await store.delete_subtree(names[1]), _LONG - 1, "all can be deleted")
        expect(ids_of((await store.tree("t")).nodes), names[0], "one is left")


async def any_text_of_a_thread_is_stored(open_store: OpenTreeStore) -> None:
    """NUL characters, all scripts, lone surrogates, and 4 MB of text come back unchanged."""
    async with opened(open_store) as store:
        for text in (*TEXTS, "🌊" * 1_000_000):
            name = f"{text[:20]}!"
            thread = a_thread(name, title=text, system_prompt=text)
            await store.create_thread(thread)
            yes(await store.thread(name) == thread, f"thread {name!r} is stored")
            use = ToolUseBlock(id=text[:20], name=text[:20], input={text[:20]: [text]})
            node = replace(a_node(f"node {name}"), thread_id=name, content=(*says(text), use))
            node = replace(node, data={text[:20]: text})
            result = Result(node.id, use.id, says(text), pending=says(text))
            await store.append([node], results=[result], refs=[Ref(text[:20], node.id)])
            yes(await store.node(node.id) == node, f"node {name!r} is stored")
            path = await store.path(node.id)
            yes(path == Path((node,), {(node.id, use.id): result}), f"path {name!r} is stored")
            yes(await store.refs(name) == {text[:20]: node.id}, f"ref {name!r} is stored")


async def simultaneous_appends_are_not_lost(open_store: OpenTreeStore) -> None:
    """Twenty tasks continue one node: all new nodes become its children."""
    async with opened(open_store) as store:
        await begin_caller(store)

        async def work(name: str) -> None:
            nodes = [a_node(name, "b"), a_node(f"{name} next", name)]
            result = a_result("b", name, tool_use_id=name)
            await store.append(nodes, results=[result], refs=[Ref("head", nodes[1].id)])

        async with anyio.create_task_group() as group:
            for number in range(20):
                group.start_soon(work, f"task {number}")
        children = {node.id for node in await store.children("b")}
        expect(children, {f"task {number}" for number in range(20)}, "all are children")
        tree = await store.tree("t")
        expect((len(tree.nodes), len(tree.results)), (42, 20), "nothing is lost")
        head = tree.refs["head"]
        expect(head.removesuffix(" next") in children, wanted=True, promise="one has the head")


async def a_cancelled_append_is_complete_or_absent(open_store: OpenTreeStore) -> None:
    """A cancellation at any moment leaves a complete append or none, and a usable store."""
    async with opened(open_store) as store:
        await begin_caller(store)
        for number in range(20):
            async with anyio.create_task_group() as group:
                nodes = [a_node(f"{number}.a", "b"), a_node(f"{number}.b", f"{number}.a")]
                group.start_soon(store.append, nodes)
                for _ in range(number):
                    await anyio.lowlevel.checkpoint()
                group.cancel_scope.cancel()
        for child in await store.children("b"):
            expect(len(await store.children(child.id)), 1, "no node without its other half")
        await store.append([a_node("c", "b")])


async def a_closed_tree_store_refuses_operations(open_store: OpenTreeStore) -> None:
    """Closing the store twice is harmless; operations on a closed store fail."""
    async with opened(open_store) as store:
        await store.create_thread(a_thread())
        await store.close()
        await refused(store.thread("t"), "reading from a closed store")
        await refused(store.create_thread(a_thread("u")), "writing to a closed store")


TREE_STORE_CHECKS: tuple[TreeStoreCheck, ...] = (
    a_misplaced_node_is_refused,
    *TREE_PROGRAM_CHECKS.values(),
    a_path_may_be_long,
    any_text_of_a_thread_is_stored,
    simultaneous_appends_are_not_lost,
    a_cancelled_append_is_complete_or_absent,
    a_closed_tree_store_refuses_operations,
)
"""The checks that open a store once."""

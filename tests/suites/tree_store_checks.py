"""The suite of stores of conversations: one check for each promise of ``TreeStore``.

The list of the checks that need the store opened once, and those about what is stored. A check is
given a function that opens an empty store, and closes what it has opened. It raises
``AssertionError`` with the broken promise. It reads no clock: times are constants.
"""

from __future__ import annotations

from dataclasses import replace

import anyio

from anabranch.messages import ToolUseBlock, Usage
from anabranch.tree import Path, Ref, RefusedError, Result, Thread
from tests.suites.expectations import TEXTS, expect, no, opened, refused, yes
from tests.suites.tree_change_checks import TREE_CHANGE_CHECKS
from tests.suites.tree_reading_checks import TREE_READING_CHECKS
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


async def a_thread_is_found_as_it_was_created(open_store: OpenTreeStore) -> None:
    """With all that it has, and only once."""
    async with opened(open_store) as store:
        plain = Thread("plain", 1.5)
        odd = a_thread("empty", system_prompt="", title="", owner="")
        for thread in (a_thread(), plain, odd, a_thread("owned", owner="\x00Ann\ud800")):
            await store.create_thread(thread)
            expect(await store.thread(thread.id), thread, "a thread is found")
        await refused(store.create_thread(a_thread(title="Another")), "it is there already")
        expect(await store.thread("t"), a_thread(), "nothing was overwritten")


async def what_is_unknown_has_nothing(open_store: OpenTreeStore) -> None:
    """Looking for what is not there is no error, except where all of it is requested."""
    async with opened(open_store) as store:
        expect(await store.thread("unknown"), None, "no thread")
        expect(await store.threads(10), [], "no threads")
        expect(await store.node("unknown"), None, "no node")
        expect(await store.children("unknown"), [], "no children")
        expect(await store.beginnings("unknown"), [], "no beginnings")
        expect(await store.refs("unknown"), {}, "no refs")
        no(await store.delete_ref("unknown", "head"), "no ref to delete")
        no(await store.delete_thread("unknown"), "no thread to delete")
        expect(await store.delete_subtree("unknown"), 0, "no nodes to delete")
        await refused(store.path("unknown"), "the path of no node")
        await refused(store.tree("unknown"), "the tree of no thread")
        await store.append([])
        await store.set_results([])


async def the_newest_thread_comes_first(open_store: OpenTreeStore) -> None:
    """By time of creation, then in the order of creation; a limit cuts off the older ones."""
    async with opened(open_store) as store:
        for name, time in (("b", 2.0), ("a", 1.0), ("c", 3.0), ("d", 2.0)):
            await store.create_thread(a_thread(name, created_at=time))
        found = [thread.id for thread in await store.threads(10)]
        expect(found, ["c", "d", "b", "a"], "the newest first")
        expect(await store.threads(1), [a_thread("c", created_at=3.0)], "no more than the limit")


async def only_the_threads_of_an_owner_are_listed_as_theirs(open_store: OpenTreeStore) -> None:
    """Those without an owner are listed under no owner; the limit counts what is listed."""
    async with opened(open_store) as store:
        owners = (("a", "ann"), ("b", None), ("c", "ANN"), ("d", "ann"), ("e", ""), ("f", None))
        for time, (name, owner) in enumerate(owners):
            await store.create_thread(a_thread(name, created_at=float(time), owner=owner))
        for owner, ids in (("ann", ["d", "a"]), (None, ["f", "b"]), ("", ["e"]), ("bo", [])):
            found = await store.threads_of(owner, 10)
            expect([thread.id for thread in found], ids, f"the threads of {owner!r}")
        expect([each.id for each in await store.threads_of("ann", 1)], ["d"], "the latest one")


async def a_node_is_found_as_it_was_appended(open_store: OpenTreeStore) -> None:
    """Every kind, with all that it has."""
    async with opened(open_store) as store:
        await begin_caller(store)
        usage = Usage(input_tokens=7, output_tokens=0)
        data = {"model": "m", "step": {"id": 3, "list": [None, True, 0.5]}}
        for node in (
            a_node("user", "a", created_at=0.125),
            a_node("assistant", "b", "assistant", usage=usage, data=data),
            a_node("results", "b", "results", ()),
            a_node("branch", "b", "branch"),
            a_node("question", "b", "question", data={"schema": {}}),
            a_node("answer", "question", "answer"),
        ):
            await store.append([node])
            expect(await store.node(node.id), node, f"a node of kind {node.kind} is found")


async def an_append_is_all_or_nothing(open_store: OpenTreeStore) -> None:
    """Whichever part of it is refused."""
    async with opened(open_store) as store:
        await begin_caller(store)
        good, held, head = a_node("c", "b"), a_result("b", "1"), Ref("head", "b")
        lost_result, lost_ref = a_result("unknown", "1"), Ref("head", "unknown")
        before = await store.tree("t")
        for nodes, results, refs in (
            ([good, a_node("d", "unknown")], [held], [head]),
            ([good], [held, lost_result], [head]),
            ([good], [held], [head, lost_ref]),
        ):
            refusing = store.append(nodes, results=results, refs=refs)
            await refused(refusing, "a part is refused", RefusedError)
            expect(await store.tree("t"), before, "nothing of it is there")
        await refused(store.set_results([held, lost_result]), "a part is refused")
        expect(await store.tree("t"), before, "nothing of it is there")
        await store.append([good], results=[held], refs=[head])
        expect(ids_of((await store.tree("t")).nodes), "a b c", "it can still be added")


async def a_node_has_its_place(open_store: OpenTreeStore) -> None:
    """A node without its thread or parent, in another's place, or where its kind cannot be, is refused."""
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


async def any_text_of_a_thread_is_stored(open_store: OpenTreeStore) -> None:
    """NUL characters, every script, lone surrogates, and 4 MB of text come back as they were."""
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


async def of_many_appends_at_once_none_is_lost(open_store: OpenTreeStore) -> None:
    """Twenty tasks continue one node: all become its children."""
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


async def a_cancelled_append_is_there_or_not(open_store: OpenTreeStore) -> None:
    """Cancelling at any moment leaves all of it or nothing, and the store in order."""
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


async def a_closed_tree_store_refuses(open_store: OpenTreeStore) -> None:
    """Closing twice is harmless; using it afterwards is not."""
    async with opened(open_store) as store:
        await store.create_thread(a_thread())
        await store.close()
        await refused(store.thread("t"), "reading from a closed store")
        await refused(store.create_thread(a_thread("u")), "writing to a closed store")


TREE_STORE_CHECKS: tuple[TreeStoreCheck, ...] = (
    a_thread_is_found_as_it_was_created,
    what_is_unknown_has_nothing,
    the_newest_thread_comes_first,
    only_the_threads_of_an_owner_are_listed_as_theirs,
    a_node_is_found_as_it_was_appended,
    an_append_is_all_or_nothing,
    a_node_has_its_place,
    *TREE_READING_CHECKS,
    *TREE_CHANGE_CHECKS,
    any_text_of_a_thread_is_stored,
    of_many_appends_at_once_none_is_lost,
    a_cancelled_append_is_there_or_not,
    a_closed_tree_store_refuses,
)
"""Each needs the store opened once."""

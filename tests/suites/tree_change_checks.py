"""Checks of stores of conversations: changes of results and refs, and deletion."""

from __future__ import annotations

from anabranch.tree import Kind, Ref, Result
from tests.suites.expectations import expect, no, opened, refused, yes
from tests.suites.tree_samples import (
    OpenTreeStore,
    TreeStoreCheck,
    a_node,
    a_result,
    a_thread,
    begin_caller,
    calls_tool,
    ids_of,
    says,
    shown_at,
)


async def a_result_is_replaced_for_all(open_store: OpenTreeStore) -> None:
    """All nodes that follow on its caller see the latest; another caller has its own."""
    async with opened(open_store) as store:
        await begin_caller(store)
        await store.append([a_node(name, "b", "branch") for name in "xyz"])
        await store.append([a_node("c", "x", "assistant", calls_tool("use"))])
        first = [a_result("b", "1", pending="9"), a_result("c", "inner")]
        await store.set_results(first)
        expect(await shown_at(store, "y"), "1", "a result is shown")
        changed = Result("b", "use", says("2"), is_error=True)
        await store.set_results([changed])
        for name in "xyz":
            found = (await store.path(name)).results["b", "use"]
            expect(found, changed, "all siblings see the change")
        expect(await shown_at(store, "c", "c"), "inner", "the same id of another caller is another")
        await store.set_results([a_result("b", "3"), a_result("b", "4")])
        expect(await shown_at(store, "x"), "4", "of two at once, the last stays")


async def what_is_pending_waits_for_the_next_message(open_store: OpenTreeStore) -> None:
    """What follows on the caller as its next message settles it for all; a branch does not."""
    kinds: tuple[Kind, ...] = ("user", "assistant", "results")
    for kind in kinds:
        async with opened(open_store) as store:
            await begin_caller(store, kind)
            held = a_result("b", "wait", tool_use_id=kind, pending="done")
            await store.append([a_node(f"early {kind}", "b", "branch")], results=[held])
            await store.append([a_node(f"late {kind}", "b", "branch")])
            await store.append([a_node(f"deep {kind}", f"late {kind}")])
            found = (await store.path(f"late {kind}")).results["b", kind]
            expect(found, held, "a branch changes nothing, nor what follows on it")
            await store.append([a_node(f"next {kind}", "b", kind)])
            done = a_result("b", "done", tool_use_id=kind)
            for name in ("early", "late", "deep", "next"):
                found = (await store.path(f"{name} {kind}")).results["b", kind]
                expect(found, done, f"all see what was pending ({kind})")
            yes(await store.delete_thread("t"), "make room for the next kind")


async def what_is_pending_waits_beyond_questions(open_store: OpenTreeStore) -> None:
    """Questions and answers stand between a caller and its next message."""
    async with opened(open_store) as store:
        await begin_caller(store)
        held = a_result("b", "wait", pending="done")
        asked = [a_node("q", "b", "question"), a_node("r", "q", "answer")]
        await store.append(asked, results=[held, a_result("r", "again", pending="later")])
        expect(await shown_at(store, "r"), "wait", "questions and answers change nothing")
        await store.append([a_node("c", "r", "results")])
        expect(await shown_at(store, "c"), "done", "the next message does")
        expect(await shown_at(store, "c", "r"), "later", "also for what the answer holds")


async def what_is_pending_is_only_settled_later(open_store: OpenTreeStore) -> None:
    """A result that arrives together with, or after, the next message waits for another one."""
    async with opened(open_store) as store:
        await begin_caller(store)
        held = a_result("b", "wait", pending="done")
        await store.append([a_node("c", "b")], results=[held])
        expect((await store.path("c")).results["b", "use"], held, "it came with the message")
        await store.append([a_node("d", "c")])
        expect((await store.path("d")).results["b", "use"], held, "d does not follow on the caller")
        await store.append([a_node("e", "b"), a_node("f", "e")])
        expect(await shown_at(store, "f"), "done", "e does")


async def a_ref_is_moved(open_store: OpenTreeStore) -> None:
    """Names point at nodes of their own thread, one each; they can be taken away."""
    async with opened(open_store) as store:
        await begin_caller(store)
        await store.create_thread(a_thread("other"))
        await store.append([a_node("theirs", thread_id="other")], refs=[Ref("head", "theirs")])
        await store.append([], refs=[Ref("head", "a"), Ref("good", "a")])
        expect(await store.refs("t"), {"good": "a", "head": "a"}, "two names of one node")
        await store.set_ref("t", Ref("head", "b"))
        expect(await store.refs("t"), {"good": "a", "head": "b"}, "one is moved")
        expect(await store.refs("other"), {"head": "theirs"}, "the other's stays")
        await refused(store.set_ref("t", Ref("head", "theirs")), "a node of another thread")
        await refused(store.set_ref("t", Ref("head", "unknown")), "no node")
        await refused(store.set_ref("unknown", Ref("head", "a")), "no thread")
        expect(await store.refs("t"), {"good": "a", "head": "b"}, "nothing was moved")
        yes(await store.delete_ref("t", "good"), "it was there")
        no(await store.delete_ref("t", "good"), "it is not any more")
        expect(await store.refs("t"), {"head": "b"}, "it is gone")


async def a_deleted_thread_is_gone(open_store: OpenTreeStore) -> None:
    """With all that belonged to it, and nothing else."""
    async with opened(open_store) as store:
        await begin_caller(store)
        await store.create_thread(a_thread("other"))
        await store.append([a_node("theirs", thread_id="other")])
        await store.append([], results=[a_result("b", "1")], refs=[Ref("head", "b")])
        yes(await store.delete_thread("t"), "it was there")
        no(await store.delete_thread("t"), "it is not any more")
        expect(await store.thread("t"), None, "no thread")
        expect(await store.node("b"), None, "no nodes")
        expect(await store.refs("t"), {}, "no refs")
        await refused(store.append([a_node("c", "b")]), "nothing can follow")
        await begin_caller(store)
        expect((await store.path("b")).results, {}, "its results are gone, too")
        expect(ids_of((await store.tree("other")).nodes), "theirs", "the other is there")


async def a_deleted_subtree_is_gone(open_store: OpenTreeStore) -> None:
    """The node and all that follows on it, with refs and results, and nothing else."""
    async with opened(open_store) as store:
        await begin_caller(store)
        tool = calls_tool("use")
        nodes = [a_node("c", "b", "branch"), a_node("d", "c", "assistant", tool), a_node("e", "b")]
        refs = [Ref("head", "d"), Ref("good", "e")]
        await store.append(nodes, results=[a_result("b", "1"), a_result("d", "2")], refs=refs)
        expect(await store.delete_subtree("c"), 2, "two nodes are gone")
        tree = await store.tree("t")
        expect(ids_of(tree.nodes), "a b e", "the others are there")
        expect(dict(tree.refs), {"good": "e"}, "and their refs")
        expect(list(tree.results), [("b", "use")], "and their results")
        await refused(store.append([a_node("f", "d")]), "nothing can follow")
        await store.append([a_node("c", "b")])
        expect(ids_of(await store.children("b")), "e c", "there is room again")


TREE_CHANGE_CHECKS: tuple[TreeStoreCheck, ...] = (
    a_result_is_replaced_for_all,
    what_is_pending_waits_for_the_next_message,
    what_is_pending_waits_beyond_questions,
    what_is_pending_is_only_settled_later,
    a_ref_is_moved,
    a_deleted_thread_is_gone,
    a_deleted_subtree_is_gone,
)
"""Each needs the store opened once."""

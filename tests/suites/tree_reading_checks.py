"""Checks of stores of conversations: reading paths, children, whole trees."""

from __future__ import annotations

from anabranch.tree import Path, Ref, Surroundings
from tests.suites.expectations import expect, opened, yes
from tests.suites.tree_samples import (
    OpenTreeStore,
    TreeStoreCheck,
    a_node,
    a_result,
    a_thread,
    begin_caller,
    calls_tool,
    ids_of,
)

_LONG = 3000
"""So long that what recurses for each generation would fail."""


async def a_path_leads_from_the_beginning(open_store: OpenTreeStore) -> None:
    """It holds what is on the way, and nothing of what is beside it."""
    async with opened(open_store) as store:
        await begin_caller(store, "use", "more")
        on, off = a_result("b", "1"), a_result("c", "2")
        both = [on, a_result("b", "3", tool_use_id="more")]
        others = calls_tool("use")
        nodes = [a_node("c", "b", "assistant", others), a_node("d", "b"), a_node("e", "d")]
        await store.append([*nodes, a_node("z")], results=[*both, off])
        expect(ids_of((await store.path("e")).nodes), "a b d e", "from the beginning to the node")
        whole = Path(
            (a_node("a"), a_node("b", "a", "assistant", calls_tool("use", "more")), nodes[1]),
            {(one.node_id, one.tool_use_id): one for one in both},
        )
        expect(await store.path("d"), whole, "with the results on the way")
        expect((await store.path("z")), Path((a_node("z"),), {}), "another beginning is alone")
        yes(("c", "use") in (await store.path("c")).results, "its own results are on the way")


async def a_path_may_be_long(open_store: OpenTreeStore) -> None:
    """Thousands of generations."""
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


async def surroundings_are_path_and_what_follows(open_store: OpenTreeStore) -> None:
    """The path, the thread, and the children of the open end: back to what has asked."""
    async with opened(open_store) as store:
        await begin_caller(store)
        await store.create_thread(a_thread("other", owner="Ann"))
        expect(await store.around("other"), None, "a thread without a head has none")
        theirs = a_node("theirs", thread_id="other")
        await store.append([theirs], refs=[Ref("head", "theirs")])
        held = a_result("b", "1", pending="2")
        asked, answered = a_node("q", "b", "question"), a_node("w", "q", "answer")
        beside = [a_node("y", "b", "branch"), a_node("x", "q", "answer"), a_node("s", "a")]
        nodes = [asked, beside[0], answered, beside[1], beside[2]]
        await store.append(nodes, results=[held], refs=[Ref("head", "w"), Ref("good", "y")])
        path = await store.path("w")
        below = {"w": [], "q": [answered, beside[1]], "b": [asked, beside[0]]}
        head = Surroundings(path.nodes, {("b", "use"): held}, a_thread(), below)
        expect(await store.around("t"), head, "those of the head")
        expect(await store.around("t", "w"), head, "and of its node")
        expect(head.last, answered, "which is the last of the path")
        inner = await store.around("t", "a")
        expect(None if inner is None else ids_of(inner.nodes), "a", "the path ends at the node")
        expect(None if inner is None else ids_of(inner.below["a"]), "b s", "with its children")
        alone = Surroundings((theirs,), {}, a_thread("other", owner="Ann"), {"theirs": []})
        expect(await store.around("other"), alone, "a thread's beginning has some")
        expect(await store.around("other", "w"), None, "a node has none in another thread")
        expect(await store.around("t", "unknown"), None, "nor has what is unknown")
        expect(await store.around("unknown"), None, "nor an unknown thread")
        expect(await store.around("t", ""), None, "an empty id is not the head's")


async def children_come_in_the_order_of_appending(open_store: OpenTreeStore) -> None:
    """The oldest first, whatever their times say; beginnings likewise."""
    async with opened(open_store) as store:
        await begin_caller(store)
        for number, name in enumerate("zmx"):
            await store.append([a_node(name, "b", created_at=50.0 - number)])
        await store.append([a_node("y", "z"), a_node("c", "b"), a_node("other")])
        expect(ids_of(await store.children("b")), "z m x c", "children, the oldest first")
        expect(await store.children("z"), [a_node("y", "z")], "all of a child")
        expect(await store.children("m"), [], "a leaf has none")
        expect(await store.beginnings("t"), [a_node("a"), a_node("other")], "beginnings")


async def a_tree_is_all_of_a_thread(open_store: OpenTreeStore) -> None:
    """Parents before children, older siblings first; nothing of another thread."""
    async with opened(open_store) as store:
        await begin_caller(store)
        await store.create_thread(a_thread("other"))
        theirs = a_node("theirs", thread_id="other")
        await store.append([theirs], refs=[Ref("head", "theirs")])
        held = a_result("b", "1", pending="2")
        await store.append([a_node("y", "b", "branch"), a_node("x", "b", "branch")], results=[held])
        await store.append([a_node("w", "x")], refs=[Ref("head", "w"), Ref("good", "y")])
        tree = await store.tree("t")
        expect(tree.thread, a_thread(), "the thread")
        expect(ids_of(tree.nodes), "a b y x w", "its nodes")
        expect(tree.nodes[4], a_node("w", "x"), "all of a node")
        expect(dict(tree.results), {("b", "use"): held}, "its results")
        expect(dict(tree.refs), {"good": "y", "head": "w"}, "its refs")
        expect((await store.tree("other")).nodes, (theirs,), "the other has its own")


async def a_thread_is_read_on_from_what_is_known(open_store: OpenTreeStore) -> None:
    """Only what was added, as long as all that is known is there."""
    async with opened(open_store) as store:
        expect(await store.nodes_after("unknown", []), [], "no nodes of no thread")
        await begin_caller(store)
        await store.create_thread(a_thread("other"))
        known = await store.nodes_after("t", []) or []
        expect(known, list((await store.tree("t")).nodes), "all of a thread")
        expect(await store.nodes_after("t", known), [], "nothing was added")
        await store.append([a_node("theirs", thread_id="other")])
        nodes = [a_node("y", "b", "branch"), a_node("x", "a"), a_node("z")]
        await store.append(nodes)
        await store.append([], results=[a_result("b", "1")], refs=[Ref("head", "y")])
        expect(await store.nodes_after("t", known), nodes, "what was added, in its order")
        expect(await store.nodes_after("t", known[:1]), [*known[1:], *nodes], "and from further up")
        known += nodes
        expect(await store.delete_subtree("x"), 1, "a node is deleted from their midst")
        expect(await store.nodes_after("t", known), None, "one of them is gone")
        known = await store.nodes_after("t", []) or []
        expect(ids_of(known), "a b y z", "all that is there")
        expect(await store.delete_subtree("z"), 1, "the last is deleted")
        await store.append([a_node("w", "b")])
        expect(await store.nodes_after("t", known), None, "another has taken its place")
        yes(await store.delete_thread("t"), "all is deleted")
        expect(await store.nodes_after("t", known), None, "none of them is there")


TREE_READING_CHECKS: tuple[TreeStoreCheck, ...] = (
    a_path_leads_from_the_beginning,
    a_path_may_be_long,
    surroundings_are_path_and_what_follows,
    children_come_in_the_order_of_appending,
    a_tree_is_all_of_a_thread,
    a_thread_is_read_on_from_what_is_known,
)
"""Each needs the store opened once."""

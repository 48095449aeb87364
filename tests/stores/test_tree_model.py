"""A store of conversations gives the results of the plain model, for any operations."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from anabranch.tree import Kind, Node, Ref, Result, TreeStore, TurnEnd
from tests.randomised import examples
from tests.stores.call_operations import operation
from tests.suites.expectations import opened
from tests.suites.linearizability import Operation, compare, explains, run_phases
from tests.suites.tree_model import TreeModel
from tests.suites.tree_samples import OpenTreeStore, a_node, a_thread, calls_tool, says

THREADS = st.sampled_from(["t", "u"])
IDS = st.sampled_from(["a", "b", "c", "d", "e", "f"])
KINDS: st.SearchStrategy[Kind] = st.sampled_from(
    ["user", "user", "assistant", "results", "branch", "question", "answer"]
)
NAMES = st.sampled_from(["head", "good"])
USES = st.sampled_from(["use", "more"])
TEXTS = st.sampled_from(["1", "2", "3"])


def placed(node_id: str, parent: str | None, kind: Kind, thread: str) -> Node:
    content = calls_tool("use", "more") if kind == "assistant" else says(node_id)
    return replace(a_node(node_id, parent, kind, content), thread_id=thread)


def held(node_id: str, use: str, text: str, pending: str | None) -> Result:
    return Result(node_id, use, says(text), pending=None if pending is None else says(pending))


NODES = st.builds(placed, IDS, st.none() | IDS | IDS, KINDS, st.sampled_from(["t", "t", "t", "u"]))
RESULTS = st.lists(st.builds(held, IDS, USES, TEXTS, st.none() | TEXTS), max_size=2)
REFS = st.lists(st.builds(Ref, NAMES, IDS), max_size=2)


APPEND = operation("append", st.lists(NODES, max_size=2), results=RESULTS, refs=REFS)
ONE = operation("append", NODES.map(lambda node: [node]))
WRITING: st.SearchStrategy[Operation] = st.one_of(
    ONE,
    ONE,
    APPEND,
    operation("append", st.just(()), results=RESULTS),
    operation("end_turn", IDS, st.none() | st.builds(TurnEnd, st.none() | TEXTS)),
    operation("set_ref", THREADS, st.builds(Ref, NAMES, IDS)),
    operation("delete_ref", THREADS, NAMES),
    operation("delete_subtree", IDS),
)
READING: st.SearchStrategy[Operation] = st.one_of(
    operation("node", IDS),
    operation("path", IDS),
    operation("path", IDS),
    operation("around", THREADS),
    operation("around", THREADS, IDS),
    operation("children", IDS),
    operation("beginnings", THREADS),
    operation("refs", THREADS),
    operation("nodes_after", THREADS, st.just(())),
    operation("tree", THREADS),
)
RARE: st.SearchStrategy[Operation] = st.one_of(
    operation("delete_thread", THREADS),
    operation("create_thread", THREADS.map(a_thread)),
    operation("threads", st.integers(1, 2)),
)
PROGRAMS = st.lists(WRITING | WRITING | WRITING | READING | RARE, max_size=25)
CLIENTS = st.lists(st.lists(WRITING | READING, max_size=4), min_size=2, max_size=3)
BEGINNING = [
    Operation("create_thread", (a_thread("t"),)),
    Operation("create_thread", (a_thread("u"),)),
    Operation("append", ([placed("a", None, "user", "t"), placed("b", "a", "assistant", "t")],)),
]
LOOKING = [
    Operation("threads", (10,)),
    Operation("tree", ("t",)),
    Operation("tree", ("u",)),
    *(Operation("path", (name,)) for name in "abcdef"),
]


async def empty(store: TreeStore) -> None:
    """Empty the store, which is faster than creating a new one."""
    for name in ("t", "u"):
        await store.delete_thread(name)


@pytest.fixture
async def two_stores(open_shared_trees: OpenTreeStore) -> AsyncIterator[list[TreeStore]]:
    """Open the same store twice, as two processes do."""
    async with opened(open_shared_trees) as one, opened(open_shared_trees) as two:
        yield [one, two]


@examples(60, HealthCheck.function_scoped_fixture)  # the test empties the store for each example
@given(program=PROGRAMS)
async def test_sequential_operations_on_a_tree_store_equal_the_model(
    two_stores: list[TreeStore], program: Sequence[Operation]
) -> None:
    await empty(two_stores[0])
    program = [*BEGINNING, *program, *LOOKING]
    await compare(two_stores[0], TreeModel(), program, "a program")


@examples(40, HealthCheck.function_scoped_fixture)  # the test empties the store for each example
@given(clients=CLIENTS)
async def test_some_order_explains_the_reads_of_concurrent_clients(
    two_stores: list[TreeStore], clients: list[list[Operation]]
) -> None:
    await empty(two_stores[0])

    seen = await run_phases(two_stores, [BEGINNING], clients, [LOOKING])

    assert explains(TreeModel(), seen)

"""The names of branches, and the nodes that a name finds."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.tree import Kind, Node, Tree, find_node, is_branch_name, name_branches
from tests.tree.samples import SAMPLE, THREAD, node

KINDS: st.SearchStrategy[Kind] = st.sampled_from(["user", "assistant", "branch", "answer"])


def test_branches_are_numbered_within_their_outer_branch() -> None:
    branches = name_branches(SAMPLE.nodes)

    assert branches.first == {
        "": "start",
        "b1": "b-graz",
        "b2": "b-linz",
        "b2.1": "b-port",
        "b3": "again",
    }
    assert branches.last == {"": "end", "b1": "graz", "b2": "linz", "b2.1": "b-port", "b3": "again"}


def test_the_oldest_continuation_stays_on_its_branch() -> None:
    branches = name_branches(SAMPLE.nodes)

    assert [branches.of[name] for name in ("start", "fork", "both", "end")] == [""] * 4
    assert [branches.opens(one) for one in SAMPLE.nodes].count(True) == 4


def test_a_second_first_node_opens_a_branch() -> None:
    nodes = [node("one", None), node("two", None), node("three", "two")]

    assert name_branches(nodes).of == {"one": "", "two": "b1", "three": "b1"}


@st.composite
def trees(draw: st.DrawFn) -> Sequence[Node]:
    nodes: list[Node] = []
    for number in range(draw(st.integers(1, 12))):
        parent = draw(st.none() | st.sampled_from([one.id for one in nodes])) if nodes else None
        nodes.append(node(f"{number}", parent, draw(KINDS)))
    return nodes


@given(nodes=trees(), shown=st.integers(0, 12))
def test_a_branch_name_stays_when_nodes_are_added(nodes: Sequence[Node], shown: int) -> None:
    early, late = name_branches(nodes[:shown]), name_branches(nodes)

    assert late.of.items() >= early.of.items()
    assert late.first.items() >= early.first.items()


@given(nodes=trees())
def test_each_branch_is_one_path(nodes: Sequence[Node]) -> None:
    branches = name_branches(nodes)
    followed = [one.parent_id for one in nodes if not branches.opens(one)]

    assert len(followed) == len(set(followed))
    for name, last in branches.last.items():
        assert last not in {one.parent_id for one in nodes if branches.of[one.id] == name}


def test_a_label_branch_or_id_finds_its_node() -> None:
    wanted = {"good": "graz", "head": "end", "b2": "linz", "b2.1": "b-port", "both": "both"}

    assert {name: find_node(SAMPLE, name) for name in wanted} == wanted
    assert [find_node(SAMPLE, name) for name in ("", "b9", "elsewhere")] == [None] * 3


def test_a_label_never_hides_a_branch_of_its_name() -> None:
    assert find_node(Tree(THREAD, SAMPLE.nodes, {}, {"b1": "start"}), "b1") == "graz"


@pytest.mark.parametrize(
    ("name", "names_branches"),
    [
        ("b1", True),
        ("b1.2", True),
        ("b12.30.4", True),
        ("b0", False),
        ("best", False),
        ("b1.", False),
    ],
)
def test_a_name_is_recognised_as_a_possible_branch_name(name: str, names_branches: bool) -> None:
    assert is_branch_name(name) is names_branches

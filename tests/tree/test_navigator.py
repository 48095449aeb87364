"""The index of a navigator; the tests of the chat's commands cover its moves."""

from collections.abc import Iterator
from dataclasses import replace

from anabranch.tree import Navigator, Node
from tests.tree.samples import SAMPLE


class Nodes(tuple[Node, ...]):
    """A sequence of nodes that counts its iterations."""

    times: int = 0

    def __iter__(self) -> Iterator[Node]:
        type(self).times += 1
        return super().__iter__()


def test_branch_names_are_computed_once() -> None:
    navigator = Navigator(replace(SAMPLE, nodes=Nodes(SAMPLE.nodes)))
    Nodes.times = 0
    found = navigator.find("b2")
    assert (found and found.id, Nodes.times) == ("linz", 0)
    found = navigator.find("both")
    assert (found and found.id, Nodes.times) == ("both", 1)
    assert navigator.find("b9") is None


def test_a_node_of_no_thread_is_on_no_branch() -> None:
    navigator = Navigator(SAMPLE)
    assert [navigator.branch_of(node) for node in ("linz", "end", None, "gone")] == [
        "b2",
        None,
        None,
        None,
    ]

"""What a walk keeps; the ways through it are shown by the commands of a session."""

from collections.abc import Iterator
from dataclasses import replace

from anabranch.tree import Navigator, Node
from tests.tree.samples import SAMPLE


class Nodes(tuple[Node, ...]):
    """Nodes that count how often they are gone through."""

    times: int = 0

    def __iter__(self) -> Iterator[Node]:
        type(self).times += 1
        return super().__iter__()


def test_the_names_of_branches_are_kept_and_not_made_again() -> None:
    walk = Navigator(replace(SAMPLE, nodes=Nodes(SAMPLE.nodes)))
    Nodes.times = 0
    found = walk.find("b2")
    assert (found and found.id, Nodes.times) == ("linz", 0)
    found = walk.find("both")
    assert (found and found.id, Nodes.times) == ("both", 1)
    assert walk.find("b9") is None


def test_what_is_no_node_of_a_thread_is_on_no_branch() -> None:
    walk = Navigator(SAMPLE)
    assert [walk.branch_of(node) for node in ("linz", "end", None, "gone")] == [
        "b2",
        None,
        None,
        None,
    ]

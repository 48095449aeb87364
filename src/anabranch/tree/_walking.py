"""Ways through a tree: up, down, to a sibling, to a fork, to the leaves.

Owns where one can stand and what is next to it. It knows the whole of a thread and looks nothing
up. One stands where something has been said to the person: at an answer of the model's, at a
question, or at whatever the tree ends with. Forks lie between such places, at what the user, or a
branch's prompt, has said; so places are next to each other if nothing to stand on lies between
them, however they came to branch off.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from anabranch.tree._naming import Naming, find_node
from anabranch.tree._nodes import HEAD, Node
from anabranch.tree._tree_store import Tree

__all__ = ["Walk", "cut", "glimpse"]


class Walk:
    """A thread, to be walked through.

    A place is named by its node's id; ``None`` is the place before everything, from which each
    beginning goes out.
    """

    def __init__(self, tree: Tree) -> None:
        self.tree: Tree = tree
        self.nodes: dict[str, Node] = {}
        self.labels: dict[str, list[str]] = {}
        self._children: dict[str | None, list[Node]] = {None: []}
        self._naming = Naming()
        self._branches = self._naming.branches
        self._take_in(tree.nodes)
        self._label()

    def grow(self, nodes: Sequence[Node], refs: Mapping[str, str]) -> None:
        """Bring it up to date: these nodes were added, and the refs are others.

        Refs to other nodes than it knows are left out.
        """
        self._take_in(nodes)
        all_nodes = (*self.tree.nodes, *nodes) if nodes else self.tree.nodes
        known = {name: node_id for name, node_id in refs.items() if node_id in self.nodes}
        self.tree = replace(self.tree, nodes=all_nodes, refs=known)
        self._label()

    def _take_in(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            self.nodes[node.id] = node
            self._children.setdefault(node.parent_id, []).append(node)
            self._naming.add(node)

    def _label(self) -> None:
        self.labels = {}
        for name, node_id in sorted(self.tree.refs.items()):
            if name != HEAD:
                self.labels.setdefault(node_id, []).append(name)

    def children(self, node_id: str | None) -> Sequence[Node]:
        """Return what follows on a node, or the beginnings; the oldest first."""
        return self._children.get(node_id, ())

    def stands(self, node: Node) -> bool:
        """Whether this is a place."""
        return node.role == "assistant" or not self.children(node.id)

    def path(self, node_id: str | None) -> list[Node]:
        """Return the nodes from a beginning to this one."""
        return list(self._upwards(node_id))[::-1]

    def above(self, node_id: str | None) -> str | None:
        """Return the next place above; ``None`` also for what has none."""
        if node_id is None:
            return None
        upwards = self._upwards(self.nodes[node_id].parent_id)
        return next((node.id for node in upwards if self.stands(node)), None)

    def below(self, node_id: str | None) -> list[Node]:
        """Return the next places below, in the order of the tree."""
        found: list[Node] = []
        left = list(reversed(self.children(node_id)))
        while left:
            node = left.pop()
            if self.stands(node):
                found.append(node)
            else:
                left += reversed(self.children(node.id))
        return found

    def siblings(self, node_id: str) -> tuple[list[Node], int]:
        """Return the places that are next to the same place above, and which of them this is.

        What is no place counts as the first place below it.
        """
        here = self.nodes[node_id]
        stand_in = here if self.stands(here) else self.below(node_id)[0]
        places = self.below(self.above(node_id))
        return places, next(n for n, place in enumerate(places) if place.id == stand_in.id)

    def last_fork(self, node_id: str | None) -> str | None:
        """Return the nearest place above from which several ways go down.

        Raises:
            LookupError: there is none; ``None`` is returned for the place before everything.
        """
        here = node_id
        while here is not None:
            here = self.above(here)
            if len(self.below(here)) > 1:
                return here
        raise LookupError

    def next_fork(self, node_id: str | None) -> str | None:
        """Return the nearest place below from which several ways go down, if there is one."""
        left = deque(self.below(node_id))
        while left:
            place = left.popleft()
            onwards = self.below(place.id)
            if len(onwards) > 1:
                return place.id
            left += onwards
        return None

    def branch_of(self, node_id: str | None) -> str | None:
        """Return the name of the branch that a node is on; ``None`` on the main stream.

        ``None`` also for what is no node of the thread.
        """
        return self._branches.of.get(node_id) or None if node_id is not None else None

    @property
    def branches(self) -> dict[str, str]:
        """The name of the branch that each node is on; that of the main stream is empty."""
        return dict(self._branches.of)

    def find(self, name: str) -> Node | None:
        """Return the node of this id or label; for a branch's name, where that branch ends."""
        node_id = find_node(self.tree, name, self._branches)
        return self.nodes[node_id] if node_id is not None else None

    def leaves(self, node_id: str | None) -> list[Node]:
        """Return the ends of all ways down, in the order of the tree; the place itself, if none."""
        found: list[Node] = []
        left = list(reversed(self.children(node_id)))
        if node_id is not None and not left:
            return [self.nodes[node_id]]
        while left:
            node = left.pop()
            followers = self.children(node.id)
            if followers:
                left += reversed(followers)
            else:
                found.append(node)
        return found

    def _upwards(self, node_id: str | None) -> Iterator[Node]:
        while node_id is not None:
            node = self.nodes[node_id]
            yield node
            node_id = node.parent_id


def glimpse(node: Node, width: int = 50) -> str:
    """Return what a node says in one line of at most ``width`` characters, cut in the middle."""
    said = " ".join(node.text.split())
    used = ", ".join(f"{use.name}(…)" for use in node.tool_uses)
    line = " → ".join(part for part in (said, used) if part) or f"({node.kind})"
    return cut(line, width)


def cut(text: str, width: int) -> str:
    """Return ``text``, or its beginning and end if it is longer than ``width``."""
    if len(text) <= width:
        return text
    before = (width - 1) // 2
    return f"{text[:before]}…{text[len(text) - (width - 1 - before) :]}"

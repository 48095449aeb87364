"""Finds the nodes around a node of a thread: above, below, siblings, forks and leaves.

A *place* is a node at which the user can continue: a reply of the model, a question, or a leaf.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from anabranch.tree._names import BranchNamer, find_node
from anabranch.tree._threads import HEAD, Node, Tree


class Navigator:
    """An index of a thread; ``None`` is the place above the roots."""

    def __init__(self, tree: Tree) -> None:
        self.tree: Tree = tree
        self.nodes: dict[str, Node] = {}
        self.labels: dict[str, list[str]] = {}
        self._children: dict[str | None, list[Node]] = {None: []}
        self._namer = BranchNamer()
        self._branches = self._namer.branches
        self._index(tree.nodes)
        self._label()

    def update(self, nodes: Sequence[Node], refs: Mapping[str, str]) -> None:
        self._index(nodes)
        all_nodes = (*self.tree.nodes, *nodes) if nodes else self.tree.nodes
        known = {name: node_id for name, node_id in refs.items() if node_id in self.nodes}
        self.tree = replace(self.tree, nodes=all_nodes, refs=known)
        self._label()

    def _index(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            self.nodes[node.id] = node
            self._children.setdefault(node.parent_id, []).append(node)
            self._namer.add(node)

    def _label(self) -> None:
        self.labels = {}
        for name, node_id in sorted(self.tree.refs.items()):
            if name != HEAD:
                self.labels.setdefault(node_id, []).append(name)

    def children(self, node_id: str | None) -> Sequence[Node]:
        return self._children.get(node_id, ())

    def is_place(self, node: Node) -> bool:
        return node.role == "assistant" or not self.children(node.id)

    def path(self, node_id: str | None) -> list[Node]:
        return list(self._upwards(node_id))[::-1]

    def above(self, node_id: str | None) -> str | None:
        if node_id is None:
            return None
        upwards = self._upwards(self.nodes[node_id].parent_id)
        return next((node.id for node in upwards if self.is_place(node)), None)

    def below(self, node_id: str | None) -> list[Node]:
        return self._first_below(node_id, self.is_place)

    def siblings(self, node_id: str) -> tuple[list[Node], int]:
        """Return the places below the place above, and the index of this node or its first place."""
        node = self.nodes[node_id]
        here = node if self.is_place(node) else self.below(node_id)[0]
        places = self.below(self.above(node_id))
        return places, next(n for n, place in enumerate(places) if place.id == here.id)

    def last_fork(self, node_id: str | None) -> str | None:
        """Return the nearest place above with several below it, or raise ``LookupError``."""
        here = node_id
        while here is not None:
            here = self.above(here)
            if len(self.below(here)) > 1:
                return here
        raise LookupError

    def next_fork(self, node_id: str | None) -> str | None:
        pending = deque(self.below(node_id))
        while pending:
            place = pending.popleft()
            next_places = self.below(place.id)
            if len(next_places) > 1:
                return place.id
            pending += next_places
        return None

    def branch_of(self, node_id: str | None) -> str | None:
        """Return the name of the branch that a node is on; ``None`` for the main stream."""
        return self._branches.of.get(node_id) or None if node_id is not None else None

    @property
    def branches(self) -> dict[str, str]:
        return dict(self._branches.of)

    def find(self, name: str) -> Node | None:
        node_id = find_node(self.tree, name, self._branches)
        return self.nodes[node_id] if node_id is not None else None

    def leaves(self, node_id: str | None) -> list[Node]:
        if node_id is not None and not self.children(node_id):
            return [self.nodes[node_id]]
        return self._first_below(node_id, lambda node: not self.children(node.id))

    def _first_below(self, node_id: str | None, ends: Callable[[Node], bool]) -> list[Node]:
        found: list[Node] = []
        pending = list(reversed(self.children(node_id)))
        while pending:
            node = pending.pop()
            if ends(node):
                found.append(node)
            else:
                pending += reversed(self.children(node.id))
        return found

    def _upwards(self, node_id: str | None) -> Iterator[Node]:
        while node_id is not None:
            node = self.nodes[node_id]
            yield node
            node_id = node.parent_id


def glimpse(node: Node, width: int = 50) -> str:
    text = " ".join(node.shown.split())
    calls = ", ".join(f"{use.name}(…)" for use in node.tool_uses)
    line = " → ".join(part for part in (text, calls) if part) or f"({node.kind})"
    return cut(line, width)


def cut(text: str, width: int) -> str:
    if len(text) <= width:
        return text
    before = (width - 1) // 2
    return f"{text[:before]}…{text[len(text) - (width - 1 - before) :]}"

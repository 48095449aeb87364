"""Finds the nodes around a node of a thread: above, below, siblings, forks and leaves.

A *place* is a node at which the user can continue: a reply of the model, a question, or a leaf.
Forks are between places, at the messages of the user and the prompts of branches. Two places are
adjacent if no other place is on the path between them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from anabranch.tree._names import BranchNamer, find_node
from anabranch.tree._threads import HEAD, Node, Tree


class Navigator:
    """An index of a thread that finds the nodes around a node without reading the store.

    The id of its node names a place. ``None`` is the place above the roots. ``labels`` has the
    labels of each node that has one, by id.
    """

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
        """Add nodes that the store has added to the thread, and replace all refs.

        Refs to unknown nodes are left out.
        """
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
        """Return the children of a node, or the roots, the oldest first."""
        return self._children.get(node_id, ())

    def is_place(self, node: Node) -> bool:
        """Return whether the user can continue at a node."""
        return node.role == "assistant" or not self.children(node.id)

    def path(self, node_id: str | None) -> list[Node]:
        """Return the nodes from a root to the node with this id."""
        return list(self._upwards(node_id))[::-1]

    def above(self, node_id: str | None) -> str | None:
        """Return the nearest node above at which a user can continue; ``None`` above the roots."""
        if node_id is None:
            return None
        upwards = self._upwards(self.nodes[node_id].parent_id)
        return next((node.id for node in upwards if self.is_place(node)), None)

    def below(self, node_id: str | None) -> list[Node]:
        """Return the nearest nodes below at which a user can continue, in order."""
        return self._first_below(node_id, self.is_place)

    def siblings(self, node_id: str) -> tuple[list[Node], int]:
        """Return the places below the same place above, and the index of this place among them.

        A node that is not a place counts as the first place below it.
        """
        node = self.nodes[node_id]
        here = node if self.is_place(node) else self.below(node_id)[0]
        places = self.below(self.above(node_id))
        return places, next(n for n, place in enumerate(places) if place.id == here.id)

    def last_fork(self, node_id: str | None) -> str | None:
        """Return the nearest place above that has several places below it.

        Raises:
            LookupError: if there is no such place; ``None`` stands for the place above the roots.
        """
        here = node_id
        while here is not None:
            here = self.above(here)
            if len(self.below(here)) > 1:
                return here
        raise LookupError

    def next_fork(self, node_id: str | None) -> str | None:
        """Return the nearest place below that has several places below it, or ``None``."""
        pending = deque(self.below(node_id))
        while pending:
            place = pending.popleft()
            next_places = self.below(place.id)
            if len(next_places) > 1:
                return place.id
            pending += next_places
        return None

    def branch_of(self, node_id: str | None) -> str | None:
        """Return the name of the branch that a node is on.

        ``None`` stands for the main stream, and for an id that is not in the thread.
        """
        return self._branches.of.get(node_id) or None if node_id is not None else None

    @property
    def branches(self) -> dict[str, str]:
        """The name of each node's branch, by node id; the main branch has an empty name."""
        return dict(self._branches.of)

    def find(self, name: str) -> Node | None:
        """Return the node with this id or ref, or the last node of the branch with this name.

        Raises:
            AmbiguousIdError: if several ids begin with ``name``.
        """
        node_id = find_node(self.tree, name, self._branches)
        return self.nodes[node_id] if node_id is not None else None

    def leaves(self, node_id: str | None) -> list[Node]:
        """Return the leaves below a node, in the order of the tree; a leaf returns itself."""
        if node_id is not None and not self.children(node_id):
            return [self.nodes[node_id]]
        return self._first_below(node_id, lambda node: not self.children(node.id))

    def _first_below(self, node_id: str | None, ends: Callable[[Node], bool]) -> list[Node]:
        """Return the nodes below for which ``ends`` is true, and none below such a node."""
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
    """Return a node's text and tool calls in one line of at most ``width`` characters."""
    text = " ".join(node.shown.split())
    calls = ", ".join(f"{use.name}(…)" for use in node.tool_uses)
    line = " → ".join(part for part in (text, calls) if part) or f"({node.kind})"
    return cut(line, width)


def cut(text: str, width: int) -> str:
    """Return ``text``, or its beginning and its end if it is longer than ``width``."""
    if len(text) <= width:
        return text
    before = (width - 1) // 2
    return f"{text[:before]}…{text[len(text) - (width - 1 - before) :]}"

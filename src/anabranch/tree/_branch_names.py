"""Names of the branches of a thread: ``b1``, ``b2``, and inside of b1, ``b1.1``.

Branches are numbered in the order in which they were opened, so a name does not change while nodes
are only added.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from anabranch.tree._finding import match_id
from anabranch.tree._nodes import Node
from anabranch.tree._tree_store import Tree

_NAME = re.compile(r"b[1-9][0-9]*(\.[1-9][0-9]*)*")


@dataclass(frozen=True, slots=True)
class Branches:
    """The branches of a thread, each a line of nodes; the main stream's name is empty.

    Attributes:
        of: the name of the branch that each node is on, by node id.
        first: the id of the node that opens each branch, by name.
        last: the id of the last node of each branch, by name.
    """

    of: Mapping[str, str]
    first: Mapping[str, str]
    last: Mapping[str, str]

    def opens(self, node: Node) -> bool:
        """Whether ``node`` is the first of a branch other than the main stream."""
        name = self.of[node.id]
        return bool(name) and self.first[name] == node.id


class BranchNamer:
    """Names the branches of a thread, node by node.

    Attributes:
        branches: the branches of all nodes that were added.
    """

    def __init__(self) -> None:
        self._of: dict[str, str] = {}
        self._first: dict[str, str] = {}
        self._last: dict[str, str] = {}
        self._opened: Counter[str] = Counter()
        self._continued: set[str | None] = set()
        self.branches: Branches = Branches(self._of, self._first, self._last)

    def add(self, node: Node) -> None:
        """Name the branch of a node, whose parent and older siblings were added before."""
        name = "" if node.parent_id is None else self._of[node.parent_id]
        if node.kind == "branch" or node.parent_id in self._continued:
            self._opened[name] += 1
            name = f"{name}.{self._opened[name]}" if name else f"b{self._opened[name]}"
        else:
            self._continued.add(node.parent_id)
        self._of[node.id] = name
        self._first.setdefault(name, node.id)
        self._last[name] = node.id


def name_branches(nodes: Iterable[Node]) -> Branches:
    """Return the branches of a thread.

    A ``branch`` node opens a branch. Of the other children of a node, the oldest continues its
    branch and each younger one opens another.

    Args:
        nodes: all nodes of the thread, in the order of :class:`Tree`.
    """
    namer = BranchNamer()
    for node in nodes:
        namer.add(node)
    return namer.branches


def is_branch_name(name: str) -> bool:
    """Return whether a branch has this name or could get it; then no label may have it."""
    return _NAME.fullmatch(name) is not None


def find_node(tree: Tree, name: str, branches: Branches | None = None) -> str | None:
    """Return the id of the node that ``name`` stands for: a branch (its last node), a ref, or an id.

    The beginning of an id is enough. ``branches`` are those of the tree, if the caller has them.

    Raises:
        AmbiguousIdError: if several ids begin with ``name``.
    """
    last = (branches or name_branches(tree.nodes)).last
    if name and name in last:
        return last[name]
    if name in tree.refs:
        return tree.refs[name]
    return match_id(name, [node.id for node in tree.nodes])

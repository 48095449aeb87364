"""Finds threads, nodes and branches by the names that users type, and the nodes around a node.

Names are refs, ids and short ids. Branches have numbers in their order of opening: ``b1``, ``b2``,
and inside of b1, ``b1.1``. A *place* is a node at which the user can continue: a reply of the model,
a question, or a leaf.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from anabranch.tree._threads import HEAD, Node, Tree, TreeStore

LEAST = 5
"""Minimum characters of a short id, so that a growing thread seldom makes it ambiguous."""
KINDS = ("node_", "thread_")
MAX_CANDIDATES = 5


class AmbiguousIdError(LookupError):
    def __init__(self, text: str, found: list[str]) -> None:
        more = f" and {len(found) - MAX_CANDIDATES} more" if len(found) > MAX_CANDIDATES else ""
        named = ", ".join(found[:MAX_CANDIDATES])
        super().__init__(
            f"{text!r} is the beginning of several ids: {named}{more}. Give more of the id."
        )


def short_ids(ids: Iterable[str]) -> dict[str, str]:
    known = list(ids)
    ends = sorted({_end(each) for each in known})
    lengths: dict[str, int] = {}
    for before, end, after in zip(["", *ends], ends, [*ends[1:], ""], strict=False):
        lengths[end] = max(LEAST, _common(before, end) + 1, _common(end, after) + 1)
    return {
        each: _end(each)[: lengths[_end(each)]] if each.startswith(KINDS) else each
        for each in known
    }


def match_id(text: str, ids: Iterable[str]) -> str | None:
    """Return the id that ``text`` is, or the only id that ``text`` shortens."""
    known = list(ids)
    if text in known:
        return text
    begin = _end(text)
    found = [each for each in known if each.startswith(KINDS) and _end(each).startswith(begin)]
    if len(begin) < LEAST or not found:
        return None
    if len(found) > 1:
        raise AmbiguousIdError(text, found)
    return found[0]


def _end(name: str) -> str:
    return name.partition("_")[2] if name.startswith(KINDS) else name


def _common(one: str, other: str) -> int:
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


LATEST = "last"
MAX_SEARCHED = 1_000
"""Maximum threads, the latest first, whose ids are compared with the beginning of an id."""


async def find_thread(store: TreeStore, name: str, *, without_owner: bool = False) -> str | None:
    """Return the id of the thread called ``name``: ``last``, an id or its beginning; else ``None``."""
    exact = await store.thread(name)
    if exact is not None and (exact.owner is None or not without_owner):
        return name
    latest = partial(store.threads_of, None) if without_owner else store.threads
    if name == LATEST:
        return next((thread.id for thread in await latest(1)), None)
    return match_id(name, [thread.id for thread in await latest(MAX_SEARCHED)])


async def find_node_id(store: TreeStore, name: str) -> str | None:
    """Return the id of the node called ``name``; ``last`` is at the head of the latest thread."""
    if await store.node(name) is not None:
        return name
    if name == LATEST:
        latest = await store.threads(1)
        return (await store.refs(latest[0].id)).get(HEAD) if latest else None
    ids: list[str] = []
    for thread in await store.threads(MAX_SEARCHED):
        ids += [node.id for node in await store.nodes_after(thread.id, ()) or ()]
    return match_id(name, ids)


_NAME = re.compile(r"b[1-9][0-9]*(\.[1-9][0-9]*)*")


@dataclass(frozen=True, slots=True)
class Branches:
    """The named branches of a thread; the main branch has an empty name.

    Attributes:
        of: the name of the branch of each node, by node id.
        first: the id of each branch's first node, by branch name.
        last: the id of each branch's last node, by branch name.
    """

    of: Mapping[str, str]
    first: Mapping[str, str]
    last: Mapping[str, str]

    def opens(self, node: Node) -> bool:
        """Whether ``node`` is the first node of a branch, other than the main branch."""
        name = self.of[node.id]
        return bool(name) and self.first[name] == node.id


class BranchNamer:
    def __init__(self) -> None:
        self._of: dict[str, str] = {}
        self._first: dict[str, str] = {}
        self._last: dict[str, str] = {}
        self._opened: Counter[str] = Counter()
        self._continued: set[str | None] = set()
        self.branches: Branches = Branches(self._of, self._first, self._last)

    def add(self, node: Node) -> None:
        """Name the branch of a node; its parent and its older siblings must have been added."""
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
    """Find the branches of a thread, and give each a name.

    A node of kind ``branch`` opens a branch. Of the other children of a node, the oldest continues
    the branch, and each younger child opens another branch.

    Args:
        nodes: all nodes of the thread, in the order of :class:`Tree`.
    """
    namer = BranchNamer()
    for node in nodes:
        namer.add(node)
    return namer.branches


def is_branch_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def find_node(tree: Tree, name: str, branches: Branches | None = None) -> str | None:
    """Return the id of the node that ``name`` stands for: a branch (its last node), a ref, or an id."""
    last = (branches or name_branches(tree.nodes)).last
    if name and name in last:
        return last[name]
    if name in tree.refs:
        return tree.refs[name]
    return match_id(name, [node.id for node in tree.nodes])


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

"""A plain model of a store of conversations, in memory, with which real stores are compared.

The model is no store: its methods are not coroutines, and it does one operation at a time.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile

from anabranch.errors import StoreError
from anabranch.tree import (
    HEAD,
    Node,
    Path,
    Ref,
    Result,
    Surroundings,
    Thread,
    Tree,
    TurnEnd,
    check_place,
)
from tests.suites.linearizability import Operation


@dataclass(slots=True)
class _State:
    threads: dict[str, Thread] = field(default_factory=dict[str, Thread])
    nodes: dict[str, Node] = field(default_factory=dict[str, Node])
    results: dict[tuple[str, str], Result] = field(default_factory=dict[tuple[str, str], Result])
    refs: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    ends: dict[str, TurnEnd] = field(default_factory=dict[str, TurnEnd])


class TreeModel:
    """The methods of :class:`TreeStore`, synchronous and sequential."""

    def __init__(self) -> None:
        self._state = _State()

    def do(self, operation: Operation) -> object:
        """Perform one operation, completely or not at all; return a ``StoreError`` as its type."""
        before = copy.deepcopy(self._state)
        try:
            return getattr(self, operation.method)(*operation.arguments, **operation.options)
        except StoreError:
            self._state = before
            return StoreError

    def create_thread(self, thread: Thread) -> None:
        _expect(thread.id not in self._state.threads)
        self._state.threads[thread.id] = thread

    def thread(self, thread_id: str) -> Thread | None:
        return self._state.threads.get(thread_id)

    def threads(self, limit: int) -> list[Thread]:
        newest_first = list(self._state.threads.values())[::-1]
        return sorted(newest_first, key=lambda thread: -thread.created_at)[:limit]

    def threads_of(self, owner: str | None, limit: int) -> list[Thread]:
        found = self.threads(len(self._state.threads))
        return [thread for thread in found if thread.owner == owner][:limit]

    def append(
        self, nodes: Sequence[Node], *, results: Sequence[Result] = (), refs: Sequence[Ref] = ()
    ) -> None:
        for node in nodes:
            self._add(node)
        for result in results:
            _expect(result.node_id in self._state.nodes)
            self._state.results[result.node_id, result.tool_use_id] = result
        for ref in refs:
            _expect(ref.node_id in self._state.nodes)
            self.set_ref(self._state.nodes[ref.node_id].thread_id, ref)

    def _add(self, node: Node) -> None:
        _expect(node.thread_id in self._state.threads)
        _expect(node.id not in self._state.nodes)
        _expect(node.parent_id is None or node.parent_id in self._state.nodes)
        try:
            check_place(node, self.node(node.parent_id) if node.parent_id else None)
        except ValueError as error:
            raise StoreError("refused") from error
        self._state.nodes[node.id] = node
        if node.kind not in {"branch", "question", "answer"}:
            self._settle(self._up(node)[1:])

    def _settle(self, above: Sequence[Node]) -> None:
        """Finish pending results: the new node follows their holder, with only questions and answers between."""
        beside = list(takewhile(lambda one: one.kind in {"question", "answer"}, above))
        holders = {one.id for one in above[: len(beside) + 1]}
        for key, result in self._state.results.items():
            if result.node_id in holders and result.pending is not None:
                self._state.results[key] = replace(result, content=result.pending, pending=None)

    def end_turn(self, node_id: str, end: TurnEnd | None) -> None:
        _expect(node_id in self._state.nodes)
        self._state.ends.pop(node_id, None)
        if end is not None:
            self._state.ends[node_id] = end

    def set_ref(self, thread_id: str, ref: Ref) -> None:
        node = self._state.nodes.get(ref.node_id)
        _expect(node is not None and node.thread_id == thread_id)
        self._state.refs[thread_id, ref.name] = ref.node_id

    def delete_ref(self, thread_id: str, name: str) -> bool:
        return self._state.refs.pop((thread_id, name), None) is not None

    def refs(self, thread_id: str) -> dict[str, str]:
        refs = sorted(self._state.refs.items())
        return {name: node_id for (thread, name), node_id in refs if thread == thread_id}

    def node(self, node_id: str) -> Node | None:
        return self._state.nodes.get(node_id)

    def path(self, node_id: str) -> Path:
        _expect(node_id in self._state.nodes)
        nodes = tuple(self._up(self._state.nodes[node_id])[::-1])
        return Path(nodes, self._held_by(nodes), ends=self._ends_of(nodes))

    def around(self, thread_id: str, node_id: str | None = None) -> Surroundings | None:
        at = self.refs(thread_id).get(HEAD) if node_id is None else node_id
        node = None if at is None else self.node(at)
        if node is None or node.thread_id != thread_id:
            return None
        path, above = self.path(node.id), self._up(node)
        beside = list(takewhile(lambda one: one.kind in {"question", "answer"}, above))
        below = {one.id: self.children(one.id) for one in above[: len(beside) + 1]}
        thread = self._state.threads[thread_id]
        return Surroundings(path.nodes, path.results, thread, below, ends=path.ends)

    def _up(self, node: Node) -> list[Node]:
        above = [node]
        while above[-1].parent_id is not None:
            above.append(self._state.nodes[above[-1].parent_id])
        return above

    def _held_by(self, nodes: Sequence[Node]) -> dict[tuple[str, str], Result]:
        holders = {node.id for node in nodes}
        return {key: result for key, result in self._state.results.items() if key[0] in holders}

    def _ends_of(self, nodes: Sequence[Node]) -> dict[str, TurnEnd]:
        return {node.id: self._state.ends[node.id] for node in nodes if node.id in self._state.ends}

    def children(self, node_id: str) -> list[Node]:
        return [node for node in self._state.nodes.values() if node.parent_id == node_id]

    def beginnings(self, thread_id: str) -> list[Node]:
        return [node for node in self._of(thread_id) if node.parent_id is None]

    def nodes_after(self, thread_id: str, known: Sequence[Node]) -> list[Node] | None:
        nodes = self._of(thread_id)
        return nodes[len(known) :] if nodes[: len(known)] == list(known) else None

    def tree(self, thread_id: str) -> Tree:
        _expect(thread_id in self._state.threads)
        nodes = tuple(self._of(thread_id))
        thread = self._state.threads[thread_id]
        refs, ends = self.refs(thread_id), self._ends_of(nodes)
        return Tree(thread, nodes, self._held_by(nodes), refs, ends)

    def _of(self, thread_id: str) -> list[Node]:
        return [node for node in self._state.nodes.values() if node.thread_id == thread_id]

    def delete_thread(self, thread_id: str) -> bool:
        self._delete({node.id for node in self._of(thread_id)})
        return self._state.threads.pop(thread_id, None) is not None

    def delete_subtree(self, node_id: str) -> int:
        doomed = {
            node.id
            for node in self._state.nodes.values()
            if node_id in {above.id for above in self._up(node)}
        }
        self._delete(doomed)
        return len(doomed)

    def _delete(self, doomed: set[str]) -> None:
        state = self._state
        state.nodes = {key: node for key, node in state.nodes.items() if key not in doomed}
        state.results = {key: one for key, one in state.results.items() if key[0] not in doomed}
        state.refs = {key: node_id for key, node_id in state.refs.items() if node_id not in doomed}
        state.ends = {key: end for key, end in state.ends.items() if key not in doomed}


def _expect(fact: bool) -> None:  # said positionally, it reads as a sentence
    """a positional argument reads like a sentence here"""
    if not fact:
        raise StoreError("refused")

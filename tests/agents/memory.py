"""A tree store in dictionaries, without I/O."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TypeAlias

from anabranch.errors import StoreError
from anabranch.tree import (
    HEAD,
    Node,
    Path,
    Ref,
    RefusedError,
    Result,
    Surroundings,
    Thread,
    Tree,
    TurnEnd,
    check_place,
    digests_in,
)

Refusing: TypeAlias = Callable[[Sequence[Node], Sequence[Result]], None]
BESIDE = {"branch", "question", "answer"}


class MemoryTrees:
    """Threads in this process; ``refuse`` may raise an error in place of an append."""

    def __init__(self, refuse: Refusing = lambda nodes, results: None) -> None:
        self._refuse = refuse
        self._threads: dict[str, Thread] = {}
        self._nodes: dict[str, Node] = {}
        self._results: dict[tuple[str, str], Result] = {}
        self._refs: dict[str, dict[str, str]] = {}
        self._ends: dict[str, TurnEnd] = {}
        self._files: dict[str, dict[str, bytes]] = {}
        self._closed = False

    async def create_thread(self, thread: Thread) -> None:
        self._check_open()
        if thread.id in self._threads:
            raise StoreError(f"There is a thread {thread.id!r} already.")
        self._threads[thread.id] = thread
        self._refs[thread.id] = {}

    async def thread(self, thread_id: str) -> Thread | None:
        self._check_open()
        return self._threads.get(thread_id)

    async def threads(self, limit: int) -> list[Thread]:
        oldest_first = sorted(self._threads.values(), key=lambda thread: thread.created_at)
        return oldest_first[::-1][:limit]

    async def threads_of(self, owner: str | None, limit: int) -> list[Thread]:
        found = await self.threads(len(self._threads))
        return [thread for thread in found if thread.owner == owner][:limit]

    async def append(
        self, nodes: Sequence[Node], *, results: Sequence[Result] = (), refs: Sequence[Ref] = ()
    ) -> None:
        self._refuse(nodes, results)
        before = (dict(self._nodes), dict(self._results))
        try:
            for node in nodes:
                self._add(node)
            self._set(results)
            threads = [self._known(ref.node_id).thread_id for ref in refs]
        except BaseException:
            self._nodes, self._results = before
            raise
        for thread_id, ref in zip(threads, refs, strict=True):
            self._refs[thread_id][ref.name] = ref.node_id

    def _add(self, node: Node) -> None:
        try:
            check_place(node, None if node.parent_id is None else self._known(node.parent_id))
        except ValueError as error:
            raise RefusedError(str(error)) from None
        if node.id in self._nodes or node.thread_id not in self._threads:
            raise RefusedError(f"Node {node.id!r} is there already, or its thread is not.")
        self._nodes[node.id] = node
        if node.kind not in BESIDE:
            self._settle(node)

    def _set(self, results: Sequence[Result]) -> None:
        found = {(result.node_id, result.tool_use_id): result for result in results}
        for node_id, _ in found:
            self._known(node_id)
        self._results.update(found)

    async def end_turn(self, node_id: str, end: TurnEnd | None) -> None:
        self._ends.pop(self._known(node_id).id, None)
        if end is not None:
            self._ends[node_id] = end

    async def set_ref(self, thread_id: str, ref: Ref) -> None:
        if self._known(ref.node_id).thread_id != thread_id:
            raise StoreError(f"Node {ref.node_id!r} is not in thread {thread_id!r}.")
        self._refs[thread_id][ref.name] = ref.node_id

    async def delete_ref(self, thread_id: str, name: str) -> bool:
        return self._refs.get(thread_id, {}).pop(name, None) is not None

    async def refs(self, thread_id: str) -> dict[str, str]:
        return dict(sorted(self._refs.get(thread_id, {}).items()))

    async def node(self, node_id: str) -> Node | None:
        return self._nodes.get(node_id)

    async def path(self, node_id: str) -> Path:
        nodes = [self._known(node_id)]
        while (parent := nodes[-1].parent_id) is not None:
            nodes.append(self._nodes[parent])
        on = {node.id for node in nodes}
        results = {key: result for key, result in self._results.items() if key[0] in on}
        ends = {name: end for name, end in self._ends.items() if name in on}
        return Path(tuple(reversed(nodes)), results, ends=ends)

    async def around(self, thread_id: str, node_id: str | None = None) -> Surroundings | None:
        at = self._refs.get(thread_id, {}).get(HEAD) if node_id is None else node_id
        if at is None or at not in self._nodes or self._nodes[at].thread_id != thread_id:
            return None
        path = await self.path(at)
        below: dict[str, list[Node]] = {}
        for node in reversed(path.nodes):
            below[node.id] = self._below(node.id)
            if node.kind not in {"question", "answer"}:
                break
        thread = self._threads[thread_id]
        return Surroundings(path.nodes, path.results, thread, below, ends=path.ends)

    async def children(self, node_id: str) -> list[Node]:
        return self._below(node_id)

    async def beginnings(self, thread_id: str) -> list[Node]:
        nodes = self._nodes.values()
        return [node for node in nodes if node.thread_id == thread_id and node.parent_id is None]

    async def nodes_after(self, thread_id: str, known: Sequence[Node]) -> list[Node] | None:
        nodes = [node for node in self._nodes.values() if node.thread_id == thread_id]
        return nodes[len(known) :] if nodes[: len(known)] == list(known) else None

    async def tree(self, thread_id: str) -> Tree:
        if thread_id not in self._threads:
            raise StoreError(f"There is no thread {thread_id!r}.")
        nodes = tuple(node for node in self._nodes.values() if node.thread_id == thread_id)
        ids = {node.id for node in nodes}
        results = {key: result for key, result in self._results.items() if key[0] in ids}
        ends = {name: end for name, end in self._ends.items() if name in ids}
        return Tree(self._threads[thread_id], nodes, results, dict(self._refs[thread_id]), ends)

    async def add_files(self, thread_id: str, files: Mapping[str, bytes]) -> None:
        self._check_open()
        if thread_id not in self._threads:
            raise StoreError(f"There is no thread {thread_id!r}.")
        held = self._files.setdefault(thread_id, {})
        held.update({digest: data for digest, data in files.items() if digest not in held})

    async def files(self, thread_id: str, digests: Collection[str]) -> dict[str, bytes]:
        held = self._files.get(thread_id, {})
        return {digest: held[digest] for digest in digests if digest in held}

    async def delete_thread(self, thread_id: str) -> bool:
        if self._threads.pop(thread_id, None) is None:
            return False
        self._drop({node.id for node in self._nodes.values() if node.thread_id == thread_id})
        del self._refs[thread_id]
        self._files.pop(thread_id, None)
        return True

    async def delete_subtree(self, node_id: str) -> int:
        gone = {node_id} & self._nodes.keys()
        for node in self._nodes.values():  # parents come before children
            if node.parent_id in gone:
                gone.add(node.id)
        if gone:
            thread_id = self._nodes[node_id].thread_id
            before = await self._digests(thread_id)
            self._drop(gone)
            for digest in before - await self._digests(thread_id):
                self._files.get(thread_id, {}).pop(digest, None)
        return len(gone)

    async def _digests(self, thread_id: str) -> set[str]:
        tree = await self.tree(thread_id)
        results = [(each.content, each.pending or ()) for each in tree.results.values()]
        return digests_in([*(node.content for node in tree.nodes), *chain(*results)])

    async def close(self) -> None:
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError("The store is closed.")

    def _below(self, node_id: str) -> list[Node]:
        return [node for node in self._nodes.values() if node.parent_id == node_id]

    def _known(self, node_id: str) -> Node:
        self._check_open()
        if node_id not in self._nodes:
            raise RefusedError(f"There is no node {node_id!r}.")
        return self._nodes[node_id]

    def _settle(self, node: Node) -> None:
        above = node.parent_id
        holders = {above}
        while above is not None and self._nodes[above].kind in {"question", "answer"}:
            above = self._nodes[above].parent_id
            holders.add(above)
        for key, result in self._results.items():
            if key[0] in holders and result.pending is not None:
                self._results[key] = replace(result, content=result.pending, pending=None)

    def _drop(self, gone: set[str]) -> None:
        self._nodes = {key: node for key, node in self._nodes.items() if key not in gone}
        self._results = {k: result for k, result in self._results.items() if k[0] not in gone}
        self._ends = {key: end for key, end in self._ends.items() if key not in gone}
        for refs in self._refs.values():
            for name in [name for name, node_id in refs.items() if node_id in gone]:
                del refs[name]

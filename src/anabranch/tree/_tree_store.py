"""The port behind which conversations are kept.

Owns the promises; ``stores/`` has the implementations and ``testing`` the suite that each must
pass. Nodes are only ever added, and a ref is a pointer beside them: whatever two processes do to
one thread at the same time, both have succeeded, and neither has lost a node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from anabranch.errors import StoreError
from anabranch.tree._nodes import Node, Ref, Result, Thread

__all__ = ["Path", "RefusedError", "Tree", "TreeStore"]


class RefusedError(StoreError):
    """What was to be added cannot be: the store is well, and takes other nodes.

    Of all that is given in one append, one thing alone may be to blame.
    """


@dataclass(frozen=True, slots=True)
class Path:
    """The nodes from a beginning to one node, and the results that any of them holds."""

    nodes: tuple[Node, ...]
    results: Mapping[tuple[str, str], Result]


@dataclass(frozen=True, slots=True)
class Tree:
    """All of a thread: nodes with parents before children, older siblings first."""

    thread: Thread
    nodes: tuple[Node, ...]
    results: Mapping[tuple[str, str], Result]
    refs: Mapping[str, str] = field(default_factory=dict[str, str])


class TreeStore(Protocol):
    """Where threads are kept.

    Methods raise ``StoreError`` (``anabranch._durable.store``) and leave nothing half done. Texts come
    back as they were. When a method returns, what it wrote survives a crash. To ask for a thread
    or node that is not there is an error only where that is said.
    """

    async def create_thread(self, thread: Thread) -> None:
        """Add a thread without nodes. A thread of this id that exists already is an error."""
        ...

    async def thread(self, thread_id: str) -> Thread | None:
        """Return the thread, ``None`` if there is none."""
        ...

    async def threads(self, limit: int) -> list[Thread]:
        """Return the latest threads, the last that was created first."""
        ...

    async def append(
        self, nodes: Sequence[Node], *, results: Sequence[Result] = (), refs: Sequence[Ref] = ()
    ) -> None:
        """Add nodes, in order, then set results, then move refs: all or nothing.

        A parent must be there, or come earlier in ``nodes``; :func:`~nodes.check_place` must allow
        each place. A node that is there already with this id is an error. What is refused for
        such a reason, or since it refers to what is not there, is a :class:`RefusedError`; any
        other error says that nothing can be written now.

        Where a new node follows on one whose results have something ``pending``, that becomes
        their content, unless the new node is a ``branch``, ``question`` or ``answer``. Questions
        and answers may stand between the two. ``results`` come too late for ``nodes``: they wait
        for another message.
        """
        ...

    async def set_results(self, results: Sequence[Result]) -> None:
        """Write results; one that is there for its node and tool use is replaced.

        All or nothing; an unknown node is an error.
        """
        ...

    async def set_ref(self, thread_id: str, ref: Ref) -> None:
        """Point a name at a node of the thread; a node that is not in it is an error."""
        ...

    async def delete_ref(self, thread_id: str, name: str) -> bool:
        """Take a name away; false if there is none."""
        ...

    async def refs(self, thread_id: str) -> dict[str, str]:
        """Return the thread's names, in their order, and the nodes that they point at."""
        ...

    async def node(self, node_id: str) -> Node | None:
        """Return the node, ``None`` if there is none."""
        ...

    async def path(self, node_id: str) -> Path:
        """Return the way to a node. One statement, however long it is and large the thread.

        An unknown node is an error.
        """
        ...

    async def children(self, node_id: str) -> list[Node]:
        """Return what follows on a node, the oldest first."""
        ...

    async def beginnings(self, thread_id: str) -> list[Node]:
        """Return the nodes that follow on nothing, the oldest first."""
        ...

    async def nodes_after(self, thread_id: str, known: Sequence[Node]) -> list[Node] | None:
        """Return what was added to a thread since ``known`` were all its nodes, as in a tree.

        Of the others it reads no more than how many there are. ``None`` if some of ``known`` are
        not there any more; what was deleted, and added again under its old id, may go unnoticed.
        """
        ...

    async def tree(self, thread_id: str) -> Tree:
        """Return all of a thread. An unknown thread is an error."""
        ...

    async def delete_thread(self, thread_id: str) -> bool:
        """Delete a thread with all that belongs to it; false if there is none."""
        ...

    async def delete_subtree(self, node_id: str) -> int:
        """Delete a node and all that follows on it, refs to them included; return how many."""
        ...

    async def close(self) -> None:
        """Give up connections and files; again does nothing. Afterwards the store refuses."""
        ...

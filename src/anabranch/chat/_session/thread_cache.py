"""A cache of the thread that a session is in: read once, then updated by what was added."""

from __future__ import annotations

import asyncio

from anabranch.tree import Navigator, Tree, TreeStore


class ThreadCache:
    """The nodes of one thread at a time, without the results of tools.

    Args:
        store: where the threads are stored.
    """

    def __init__(self, store: TreeStore) -> None:
        self._store = store
        self._cached: Navigator | None = None
        self._lock = asyncio.Lock()

    async def read(self, thread_id: str) -> Navigator | None:
        """Return the thread as it is now, ``None`` if there is none.

        Only nodes added since the last call are read, so that a step in a large thread is cheap.
        """
        # A command and a front end may read at the same time; if both added the same nodes, their
        # branches would be counted twice.
        async with self._lock:
            thread = await self._store.thread(thread_id)
            if thread is None:
                return None
            # Before the nodes: then each ref points at a node that is read, unless it was deleted
            # in between.
            refs = await self._store.refs(thread_id)
            walk, added = self._cached, None
            if walk is not None and walk.tree.thread == thread:
                added = await self._store.nodes_after(thread_id, walk.tree.nodes)
            if walk is None or added is None:
                walk = Navigator(Tree(thread, (), {}))
                added = await self._store.nodes_after(thread_id, ()) or []
            walk.update(added, refs)
            self._cached = walk
            return walk

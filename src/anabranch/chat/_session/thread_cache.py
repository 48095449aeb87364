"""Threads as a session knows them: read once, and kept up to date.

Owns what is remembered between two lines, and that it grows by one reader at a time. Where one is
in a thread, and what that means, is the session's.
"""

from __future__ import annotations

import asyncio

from anabranch.tree import Navigator, Tree, TreeStore

__all__ = ["Walks"]


class Walks:
    """The walk through one thread at a time, without what tools have returned.

    Args:
        store: where threads are kept.
    """

    def __init__(self, store: TreeStore) -> None:
        self._store = store
        self._kept: Navigator | None = None
        self._reading = asyncio.Lock()

    async def of(self, thread_id: str) -> Navigator | None:
        """Return the thread as it is now, ``None`` if there is none.

        It is kept, and what was added since is read: a thread may be large, and a step is small.
        """
        # Lines and whoever shows them read at once; two that grew it by the same nodes would
        # have it count the branches of these twice.
        async with self._reading:
            thread = await self._store.thread(thread_id)
            if thread is None:
                return None
            # Before the nodes: a name points at what is there already, if it has not just been
            # deleted.
            refs = await self._store.refs(thread_id)
            walk, added = self._kept, None
            if walk is not None and walk.tree.thread == thread:
                added = await self._store.nodes_after(thread_id, walk.tree.nodes)
            if walk is None or added is None:
                walk = Navigator(Tree(thread, (), {}))
                added = await self._store.nodes_after(thread_id, ()) or []
            walk.update(added, refs)
            self._kept = walk
            return walk

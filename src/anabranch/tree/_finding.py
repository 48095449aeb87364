"""Threads and nodes of a store as people name them: ``last``, a whole id, or the beginning of one."""

from __future__ import annotations

from functools import partial

from anabranch.tree._nodes import HEAD
from anabranch.tree._short_ids import match_id
from anabranch.tree._tree_store import TreeStore

LATEST = "last"
"""The name of the latest thread."""
MAX_SEARCHED = 1_000
"""Threads, the latest first, among whose ids the beginning of one is looked for."""


async def find_thread(store: TreeStore, name: str, *, without_owner: bool = False) -> str | None:
    """Return the id of the thread that ``name`` stands for, if there is one.

    With ``without_owner``, threads that have an owner do not exist for the caller.

    Raises:
        AmbiguousIdError: several ids begin like this.
    """
    exact = await store.thread(name)
    if exact is not None and (exact.owner is None or not without_owner):
        return name
    latest = partial(store.threads_of, None) if without_owner else store.threads
    if name == LATEST:
        return next((thread.id for thread in await latest(1)), None)
    return match_id(name, [thread.id for thread in await latest(MAX_SEARCHED)])


async def find_node_id(store: TreeStore, name: str) -> str | None:
    """Return the id of the node that ``name`` is, or is the beginning of, if there is one.

    ``last`` is where the latest thread was left.

    Raises:
        AmbiguousIdError: several ids begin like this.
    """
    if await store.node(name) is not None:
        return name
    if name == LATEST:
        latest = await store.threads(1)
        return (await store.refs(latest[0].id)).get(HEAD) if latest else None
    ids: list[str] = []
    for thread in await store.threads(MAX_SEARCHED):
        ids += [node.id for node in await store.nodes_after(thread.id, ()) or ()]
    return match_id(name, ids)

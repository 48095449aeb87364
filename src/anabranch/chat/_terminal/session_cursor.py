"""The cursor of a session: the thread and the node that the next message follows.

Each move moves the thread's head, where the next session starts.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import TypeAlias

from anabranch.chat._terminal.session_output import (
    Output,
    SessionError,
    position,
    result_text,
    whole,
)
from anabranch.errors import StoreError
from anabranch.tree import HEAD, Navigator, Node, Path, Ref, Tree, TreeStore, state_of

Place: TypeAlias = tuple[str, str | None]
"""A thread's id and the id of a node in it; ``None`` is the place before the first node."""

MAX_PLACES = 100
"""The most places that a session can return to."""

logger: logging.Logger = logging.getLogger("anabranch.chat")


class SessionCursor:
    def __init__(self, store: TreeStore, thread_id: str) -> None:
        self.thread_id: str = thread_id
        self.node_id: str | None = None
        self._store = store
        self._cached: Navigator | None = None
        self._lock = asyncio.Lock()
        self._history: deque[Place] = deque([self._place], MAX_PLACES)

    @property
    def _place(self) -> Place:
        return self.thread_id, self.node_id

    # -- reading -----------------------------------------------------------------------------

    async def look(self) -> Navigator | None:
        """Return the thread without results of tools, ``None`` if it does not exist."""
        return await self._read(self.thread_id)

    async def _read(self, thread_id: str) -> Navigator | None:
        # A command and a front end may read at the same time. If both added the same nodes, their
        # branches would count twice.
        async with self._lock:
            thread = await self._store.thread(thread_id)
            if thread is None:
                return None
            # Refs are read before the nodes: each ref then points at a node that the read finds, unless
            # another session deletes the node in between.
            refs = await self._store.refs(thread_id)
            # Only the nodes added since are read, so that a step in a large thread is cheap.
            walk, added = self._cached, None
            if walk is not None and walk.tree.thread == thread:
                added = await self._store.nodes_after(thread_id, walk.tree.nodes)
            if walk is None or added is None:
                walk = Navigator(Tree(thread, (), {}))
                added = await self._store.nodes_after(thread_id, ()) or []
            walk.update(added, refs)
            self._cached = walk
            return walk

    async def walk(self) -> Navigator:
        """Return :meth:`look` for a thread with nodes, or raise ``SessionError``.

        If someone has deleted the cursor's node, the cursor moves to the thread's head first.
        """
        walk = await self._look_around()
        if walk is None or not walk.nodes:
            raise SessionError("This conversation has no messages yet.")
        return walk

    async def node(self) -> Node | None:
        return None if self.node_id is None else await self._store.node(self.node_id)

    async def check(self) -> None:
        if self.node_id is not None and await self.node() is None:
            raise await self._deleted()

    async def here(self) -> list[Output]:
        walk = await self._look_around()
        if walk is None:
            raise await self._deleted()
        outputs = [Output("system", position(walk, self.node_id))]
        if self.node_id is not None:
            node = walk.nodes[self.node_id]
            path = await self._store.path(node.id)
            state = state_of(node, walk, path)
            text = whole(walk, node, state, _results(node, path))
            said = node.kind == "assistant" and not node.tool_uses
            outputs.append(Output("message", text, node.id, is_markdown=said))
        return outputs

    async def _look_around(self) -> Navigator | None:
        walk = await self.look()
        if self.node_id is not None and (walk is None or self.node_id not in walk.nodes):
            raise await self._deleted()
        return walk

    async def _deleted(self) -> SessionError:
        self.node_id = (await self._store.refs(self.thread_id)).get(HEAD)
        if await self._store.thread(self.thread_id) is None:
            return SessionError(
                "Someone deleted this conversation elsewhere. Your next message starts it again."
            )
        where = "at the end of the conversation" if self.node_id else "before the first message"
        return SessionError(
            f"Another chat or command deleted your place in the conversation. You are now {where}."
        )

    # -- moving ------------------------------------------------------------------------------

    async def open(self, thread_id: str) -> list[Output]:
        walk = await self._read(thread_id)
        self.thread_id, self.node_id = thread_id, None
        if walk is None:
            return [Output("system", f"A new thread, {thread_id}. /help lists the commands.")]
        self.node_id = walk.tree.refs.get(HEAD)
        title = f": {walk.tree.thread.title}" if walk.tree.thread.title else ""
        return [Output("system", f"Thread {thread_id}{title}"), *await self.here()]

    async def go(self, node_id: str | None, thread_id: str | None = None) -> list[Output]:
        thread_id = thread_id or self.thread_id
        if node_id is None:
            await self._store.delete_ref(thread_id, HEAD)
        else:
            await self._store.set_ref(thread_id, Ref(HEAD, node_id))
        self.thread_id, self.node_id = thread_id, node_id
        return await self.here()

    def follow(self, added: Node) -> None:
        if added.parent_id == self.node_id and added.kind != "branch":
            self.node_id = added.id

    async def catch_up(self) -> None:
        """Go to the thread's head if it is below the cursor; a failure is only logged."""
        try:
            head = (await self._store.refs(self.thread_id)).get(HEAD)
            path = (await self._store.path(head)).nodes if head is not None else ()
        except StoreError:
            logger.exception("the session could not move to the nodes that the last input added")
        else:
            if self.node_id in {node.parent_id for node in path}:
                self.node_id = head

    def add_to_history(self) -> None:
        if self._history[-1] != self._place:
            self._history.append(self._place)

    def clear_history(self) -> None:
        self._history = deque([self._place], MAX_PLACES)

    async def undo(self) -> list[Output]:
        places = list(self._history)
        while places and (places[-1] == self._place or await self._is_deleted(places[-1])):
            places.pop()
        if not places:
            raise SessionError("There is nothing to undo. /up goes back in the conversation.")
        thread_id, node_id = places[-1]
        exists = await self._store.thread(thread_id) is not None
        outputs = await (self.go(node_id, thread_id) if exists else self.open(thread_id))
        self._history = deque(places, MAX_PLACES)
        return outputs

    async def _is_deleted(self, place: Place) -> bool:
        node_id = place[1]
        return node_id is not None and await self._store.node(node_id) is None


def _results(node: Node, path: Path) -> Sequence[str]:
    """Return the results of the node's tools, or of the tools before a ``results`` node."""
    if not node.tool_uses and node.kind != "results":
        return ()
    caller = next(each for each in reversed(path.nodes) if each.tool_uses)
    results = [
        result
        for use in caller.tool_uses
        for (_, use_id), result in path.results.items()
        if use_id == use.id
    ]
    return [result_text(result.pending or result.content) for result in results]

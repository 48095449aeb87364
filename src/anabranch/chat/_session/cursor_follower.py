"""Moves a session's cursor along the nodes that the session itself adds.

The names of these nodes are recorded when they are made; nodes of other sessions in the same
thread, and nodes in branches, are not followed.
"""

from __future__ import annotations

import logging
from typing import Literal

from anabranch.agents import Event, NodeAdded
from anabranch.chat._session.session_cursor import SessionCursor
from anabranch.chat._session.session_dependencies import SessionDependencies
from anabranch.errors import StoreError
from anabranch.tree import Node

BATCH = {"question", "answer", "results"}
"""Kinds of nodes that continue the line of a tool batch, under names that follow from it."""

logger: logging.Logger = logging.getLogger("anabranch.chat")


class CursorFollower:
    """The naming and the listener of a session's agent, which together move ``cursor``."""

    def __init__(self, cursor: SessionCursor, dependencies: SessionDependencies) -> None:
        self._cursor = cursor
        self._dependencies = dependencies
        self._own: set[str] = set()

    def name(self, kind: Literal["thread", "node"]) -> str:
        """Return a name for a thread or node of this session."""
        name = self._dependencies.naming(kind)
        self._own.add(name)
        return name

    async def on_event(self, event: Event) -> None:
        """Follow the node that was added, and pass the event to the session's listener."""
        if isinstance(event, NodeAdded) and self._follows(event.node, BATCH):
            self._cursor.node_id = event.node.id
            self._own.add(event.node.id)
        await self._dependencies.listener(event)

    async def catch_up(self) -> None:
        """Follow nodes that are stored, but whose event was lost by an interruption.

        A store that fails is logged: what has interrupted the session is about to be raised, and
        matters more.
        """
        try:
            while self._own and (node := await self._next()) is not None:
                self._cursor.node_id = node.id
            self._own.clear()
        except StoreError:
            logger.exception("the session could not follow the nodes that its last line has added")

    async def _next(self) -> Node | None:
        store, cursor = self._dependencies.store, self._cursor
        followers = (
            await store.beginnings(cursor.thread_id)
            if cursor.node_id is None
            else await store.children(cursor.node_id)
        )
        kinds = BATCH if cursor.node_id in self._own else set[str]()
        return next((node for node in reversed(followers) if self._follows(node, kinds)), None)

    def _follows(self, node: Node, kinds: set[str]) -> bool:
        """Whether ``node`` follows the cursor, and is the session's own, or of these kinds."""
        follows = node.parent_id == self._cursor.node_id and node.kind != "branch"
        return follows and (node.id in self._own or node.kind in kinds)

"""The state of a session, which its commands read and change, and the agent made from it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from anabranch._aio import run_shielded
from anabranch.agents import Agent, Model
from anabranch.chat._session.session_cursor import CursorFollower, SessionCursor
from anabranch.chat._session.session_dependencies import SessionDependencies, SessionSettings
from anabranch.chat._session.session_output import error_text
from anabranch.chat._turns import end_turn
from anabranch.errors import StoreError
from anabranch.messages import FileBlock
from anabranch.stores import open_store
from anabranch.tree import HEAD, Thread, digests_in

MAX_TITLE = 60

logger: logging.Logger = logging.getLogger("anabranch.chat")


class SessionState:
    """The state of a session in the thread ``thread_id``, or in a new one.

    Attributes:
        dependencies: the session's surroundings.
        cursor: the place that the next message follows.
        model: the model that replies.
        model_name: the name of that model.
        settings: the settings, limits included.
        unanswered: the last message that has no answer from a model yet.
        attached: files of the next message, with their bytes.
    """

    def __init__(self, dependencies: SessionDependencies, thread_id: str | None = None) -> None:
        self.dependencies = dependencies
        self.cursor: SessionCursor = SessionCursor(
            dependencies.store, thread_id or dependencies.naming("thread")
        )
        self.model: Model = dependencies.model
        self.model_name: str = dependencies.model_name
        self.settings: SessionSettings = SessionSettings.of(dependencies.limits)
        self.unanswered: str | None = None
        self.attached: list[tuple[FileBlock, bytes]] = []
        self._follower = CursorFollower(self.cursor, dependencies)
        self._calls = dependencies.calls or open_store(dependencies.store)

    @property
    def agent(self) -> Agent:
        """An agent with the present model and settings, which moves the cursor."""
        given = self.dependencies
        return Agent(
            given.store,
            self.model,
            tools=given.tools,
            person=given.person,
            limits=self.settings.limits(given.limits),
            tool_limits=given.tool_limits,
            listener=self._follower.on_event,
            clock=given.clock,
            naming=self._follower.name,
            capabilities=given.capabilities,
            calls=self._calls,
        )

    async def thread(self, text: str) -> Thread:
        """Return the thread; if it does not exist, create it with a title made of ``text``.

        Raises:
            SessionError: if someone else deleted the cursor's node; see :meth:`SessionCursor.walk`.
        """
        await self.cursor.check()
        store, thread_id = self.dependencies.store, self.cursor.thread_id
        thread = await store.thread(thread_id)
        if thread is None:
            title = " ".join(text.split())[:MAX_TITLE]
            now, system_prompt = self.dependencies.clock.now(), self.dependencies.system_prompt
            thread = Thread(thread_id, now, system_prompt, title)
            try:
                await store.create_thread(thread)
            except StoreError:
                # Another session may have created the thread meanwhile.
                existing = await store.thread(thread_id)
                if existing is None:
                    raise
                return existing
        return thread

    async def discard_unanswered(self) -> None:
        """Delete the message at the cursor if its model failed; the next message replaces it.

        The next message gets the files of the deleted one.
        """
        here, store = self.cursor.node_id, self.dependencies.store
        if here is None or here != self.unanswered or await store.children(here):
            return
        message = await self.cursor.node()
        if message is not None and here not in (await self._labelled()):
            files = await store.files(message.thread_id, digests_in([message.content]))
            await store.delete_subtree(here)
            self.attached[:0] = [
                (block, files[block.digest or ""])
                for block in message.content
                if isinstance(block, FileBlock) and block.digest in files
            ]
            self.cursor.node_id = message.parent_id

    async def _labelled(self) -> set[str]:
        refs = await self.dependencies.store.refs(self.cursor.thread_id)
        return {node_id for name, node_id in refs.items() if name != HEAD}

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[None]:
        """Run a turn within the block, and store an end without a reply at the turn's last node.

        Raises:
            Exception: if the turn raises it.
        """
        try:
            yield
        except asyncio.CancelledError:
            await run_shielded(self._store_end(None))
            raise
        except Exception as error:
            await self._store_end(error_text(error))
            raise

    async def _store_end(self, error: str | None) -> None:
        await self._follower.catch_up()
        if self.cursor.node_id is None:
            return
        try:
            await end_turn(self.agent, self.cursor.thread_id, self.cursor.node_id, error)
        except StoreError:
            logger.exception("could not store the end of a turn")

    async def settle(self) -> None:
        """Move the cursor to the last added node, and add the place to the history.

        The session calls this after each step, even after a failed or cancelled one.
        """
        await self._follower.catch_up()
        self.cursor.add_to_history()

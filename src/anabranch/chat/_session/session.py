"""The session: one conversation, a place in it, and what each line of input does.

Owns the cursor. A line is read, carried out, and answered with outputs; what goes wrong is an
output, too, and leaves the tree valid. The cursor follows what is said, wherever a turn ends or is
interrupted, and the thread's head follows the cursor, so that the next session begins there. Two
sessions in one thread have a cursor each, and what they say becomes branches.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Literal

from anabranch._engine import to_the_end
from anabranch.agents._agent import Agent
from anabranch.agents._events import Event, NodeAdded
from anabranch.agents._ports import Model
from anabranch.chat._session.command_table import COMMANDS, Outputs, unknown
from anabranch.chat._session.dependencies import World
from anabranch.chat._session.line_reading import read_line
from anabranch.chat._session.navigation_history import Place, Trail
from anabranch.chat._session.node_text import position, whole
from anabranch.chat._session.output import Output, SessionError
from anabranch.chat._session.settings import Settings
from anabranch.chat._session.thread_cache import Walks
from anabranch.errors import AnabranchError, StoreError
from anabranch.models import ModelError
from anabranch.tree import HEAD, Navigator, Node, Ref, Thread, Tree

__all__ = ["Session"]

logger: logging.Logger = logging.getLogger("anabranch.agents")

TITLE = 60


class Session:
    """A conversation as a person leads it.

    Args:
        world: what it lives in.
        thread_id: the thread to begin in; one that is not there begins with the first message.

    Attributes:
        thread_id: the thread.
        cursor: where the next message goes; ``None`` before the first.
        model: who answers.
        model_name: what the model is called.
        settings: what has been set.
    """

    def __init__(self, world: World, *, thread_id: str | None = None) -> None:
        self.world = world
        self.thread_id: str = thread_id or world.naming("thread")
        self.cursor: str | None = None
        self.model: Model = world.model
        self.model_name: str = world.model_name
        self.settings: Settings = Settings.of(world.limits)
        self._trail = Trail([self._place])
        self._own: set[str] = set()
        self._walks = Walks(world.store)

    @property
    def agent(self) -> Agent:
        """The agent of now: what was set and switched to holds from the next turn on."""
        world = self.world
        return Agent(
            world.store,
            self.model,
            tools=world.tools,
            person=world.person,
            limits=self.settings.limits(world.limits),
            listener=self._hear,
            clock=world.clock,
            naming=self._name,
        )

    # -- input -------------------------------------------------------------------------------

    async def start(self) -> list[Output]:
        """Go to where the thread was left, and tell of it.

        Raises:
            StoreError: the store cannot be read.
        """
        outputs = await self.open(self.thread_id)
        self._trail = Trail([self._place])
        return outputs

    async def input(self, line: str) -> list[Output]:
        """Do what a line says, and return what there is to show.

        Cancelled, it keeps what was received, and the cursor is where that ends.
        """
        read = read_line(line, self._fits)
        steps: list[Callable[[], Awaitable[Outputs]]] = []
        if read.message is not None:
            steps.append(partial(COMMANDS["say"].run, self, read.message))
        if read.command is not None:
            steps.append(partial(self._command, read.command, read.rest, line.strip()))
        outputs: list[Output] = []
        for step in steps:
            try:
                outputs += await self._kept(step)
            except Exception as error:  # noqa: BLE001 - a session outlives whatever a line does
                outputs.append(Output("error", _told(error)))
                break
        return outputs

    async def _kept(self, step: Callable[[], Awaitable[Outputs]]) -> list[Output]:
        """Take a step, and remember where it has led; also if it fails, or is cancelled."""
        try:
            outputs = await step()
        finally:
            await to_the_end(self._try_to_catch_up())
            self._trail.note(self._place)
        return outputs if isinstance(outputs, list) else [outputs]

    def _fits(self, name: str, rest: str) -> bool:
        wanted = COMMANDS.get(name)
        return wanted.takes(rest) if wanted is not None else name in self.agent.tools

    async def _command(self, name: str, rest: str, line: str) -> Outputs:
        wanted = COMMANDS.get(name)
        if wanted is not None:
            return await wanted.run(self, *wanted.arguments(rest))
        tools = self.agent.tools
        if name in tools:
            return await COMMANDS["call"].run(self, name, rest)
        if line == f"/{name}" or "/" not in name:
            raise unknown(name, [*COMMANDS, *tools])
        raise SessionError(f"There is no command /{name}. A message like this begins with //.")

    # -- the place ---------------------------------------------------------------------------

    @property
    def _place(self) -> Place:
        return self.thread_id, self.cursor

    async def open(self, thread_id: str) -> list[Output]:
        """Go to where a thread was left; one that is not there will begin with a message."""
        walk = await self._walks.of(thread_id)
        self.thread_id, self.cursor = thread_id, None
        if walk is None:
            return [Output("system", f"A new thread, {thread_id}. /help lists the commands.")]
        self.cursor = walk.tree.refs.get(HEAD)
        title = f": {walk.tree.thread.title}" if walk.tree.thread.title else ""
        return [Output("system", f"Thread {thread_id}{title}"), *await self.here()]

    async def thread(self, title: str) -> Thread:
        """Return the thread; it begins now if it has not yet, titled after what is said.

        Raises:
            SessionError: the cursor's node is gone; see ``walk``.
        """
        if self.cursor is not None and await self.node() is None:
            raise await self._lost()
        thread = await self.world.store.thread(self.thread_id)
        if thread is None:
            named = " ".join(title.split())[:TITLE]
            thread = Thread(self.thread_id, self.world.clock.now(), title=named)
            try:
                await self.world.store.create_thread(thread)
            except StoreError:
                # Somebody else may have begun it since.
                begun = await self.world.store.thread(self.thread_id)
                if begun is None:
                    raise
                return begun
        return thread

    async def look(self) -> Navigator | None:
        """Return the thread, whatever the cursor is on; ``None`` if it has not begun."""
        return await self._walks.of(self.thread_id)

    async def walk(self) -> Navigator:
        """Return the thread, to be walked through; without what tools have returned.

        Raises:
            SessionError: nothing has been said in it; or the cursor's node is gone, since somebody
                else has deleted it. Then the cursor is where the thread's head is.
        """
        walk = await self._around()
        if walk is None or not walk.nodes:
            raise SessionError("Nothing has been said here yet.")
        return walk

    async def _around(self) -> Navigator | None:
        walk = await self.look()
        if self.cursor is not None and (walk is None or self.cursor not in walk.nodes):
            raise await self._lost()
        return walk

    async def _lost(self) -> SessionError:
        """Go to where the thread was left, since the cursor's node is gone; return what to say."""
        store = self.world.store
        self.cursor = (await store.refs(self.thread_id)).get(HEAD)
        if await store.thread(self.thread_id) is None:
            return SessionError(
                "This conversation has been deleted elsewhere. What you say next begins it anew."
            )
        where = "where the conversation was left" if self.cursor else "before the first message"
        return SessionError(f"What was here has been deleted elsewhere. You are {where} now.")

    async def tree(self) -> Tree:
        """Return all of the thread, what tools have returned included.

        Raises:
            SessionError: it has not begun.
        """
        await self.walk()
        return await self.world.store.tree(self.thread_id)

    async def node(self) -> Node | None:
        """Return the node at the cursor, ``None`` before the first."""
        return None if self.cursor is None else await self.world.store.node(self.cursor)

    async def go(self, node_id: str | None, thread_id: str | None = None) -> list[Output]:
        """Put the cursor on a node of the thread, or of another, and tell what is there."""
        thread_id = thread_id or self.thread_id
        if node_id is None:
            await self.world.store.delete_ref(thread_id, HEAD)
        else:
            await self.world.store.set_ref(thread_id, Ref(HEAD, node_id))
        self.thread_id, self.cursor = thread_id, node_id
        return await self.here()

    async def here(self) -> list[Output]:
        """Tell where the cursor is, and what is said there.

        Raises:
            SessionError: the cursor's node, or the thread, is gone; see ``walk``.
        """
        walk = await self._around()
        if walk is None:
            raise await self._lost()
        told = [Output("system", position(walk, self.cursor))]
        if self.cursor is not None:
            node = walk.nodes[self.cursor]
            told.append(Output("message", whole(node, walk.children(node.id)), node.id))
        return told

    async def undo(self) -> list[Output]:
        """Go back to where the cursor was before it last moved; places that are gone are skipped.

        Raises:
            SessionError: it has not moved.
        """
        trail = await self._trail.before(self._place, self.world.store)
        if trail is None:
            raise SessionError("There is nothing to undo. /up goes back in the conversation.")
        thread_id, cursor = trail.last
        begun = await self.world.store.thread(thread_id) is not None
        outputs = await (self.go(cursor, thread_id) if begun else self.open(thread_id))
        self._trail = trail
        return outputs

    # -- following what is said --------------------------------------------------------------

    def _name(self, kind: Literal["thread", "node"]) -> str:
        name = self.world.naming(kind)
        self._own.add(name)
        return name

    def _leads_on(self, node: Node) -> bool:
        return node.parent_id == self.cursor and node.kind != "branch" and node.id in self._own

    async def _hear(self, event: Event) -> None:
        if isinstance(event, NodeAdded) and self._leads_on(event.node):
            self.cursor = event.node.id
        await self.world.listener(event)

    async def _try_to_catch_up(self) -> None:
        try:
            await self._catch_up()
        except StoreError:
            # What the step itself has raised, a cancellation above all, says more.
            logger.exception("the session could not follow what its last line has added")

    async def _catch_up(self) -> None:
        """Follow nodes that are in the store, but whose coming an interruption kept from us."""
        while self._own:
            store = self.world.store
            at = self.cursor
            after = await (store.beginnings(self.thread_id) if at is None else store.children(at))
            onwards = [node.id for node in after if self._leads_on(node)]
            if not onwards:
                self._own.clear()
                return
            self.cursor = onwards[-1]


def _told(error: Exception) -> str:
    """Return the error in words for the person; one that nobody expected is logged."""
    if isinstance(error, SessionError | AnabranchError | ModelError | StoreError):
        return str(error)
    logger.error("a line of input has failed", exc_info=error)
    return f"An unexpected error: {type(error).__name__}: {error}. The log has the details."

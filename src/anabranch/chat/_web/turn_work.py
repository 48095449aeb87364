"""Does the work of one turn: from a message or answers to the next questions or the reply.

The work depends on the tree alone, so that another process can continue it after a crash.
"""

from __future__ import annotations

from dataclasses import replace

from anabranch.agents import Agent, PathEnd, end_of
from anabranch.chat._turns import UserCall, has_returned, is_by_user, results_at_end
from anabranch.chat._web.run_input import HEAD, Message, node_id
from anabranch.errors import ToolError
from anabranch.messages import Block, TextBlock
from anabranch.tree import ASIDE, Node, Path, Ref, Surroundings, Thread, surroundings_after
from anabranch.tree import HEAD as HEAD_REF

MESSAGE_ID = "message_id"
"""The data key of the client's id of a user's message."""


class TurnWork:
    """Does the work of the turns in one thread; any number of processes add each node once."""

    def __init__(self, agent: Agent, thread: Thread) -> None:
        self._agent = agent
        self._thread = thread
        self._thread_id = thread.id

    async def check(self, message: Message) -> None:
        if not message.text.strip() and not message.files:
            raise ToolError("A message must not be blank.")
        if message.at is not HEAD and message.at is not None:
            node = await self._agent.store.node(message.at)
            if node is None or node.thread_id != self._thread_id:
                raise ToolError(f"This conversation has no node {message.at!r}.")
        UserCall.read(self._agent, message.text)

    async def retried_at(self, node_id: str) -> str:
        """Return the node from which to retry a turn; raise ``ToolError`` if none ended there.

        If a tool has returned or has an answer, the node is the end, so that no effect is repeated.
        """
        around = await self._agent.store.around(self._thread_id, node_id)
        if around is None or around.last.id not in around.ends:
            raise ToolError(
                f"The node {node_id!r} does not end a turn without a reply. Retry at the last node of such a turn."
            )
        is_answered = around.last.kind in ASIDE and None in results_at_end(around)
        if is_answered or has_returned(around):
            return node_id
        kinds = {"user"} if is_by_user(around) else {"user", "results"}
        replied = (each for each in reversed(around.nodes) if each.kind in kinds)
        return next(replied).id

    async def go_back(self, node_id: str) -> None:
        """Move the head to the node from which a turn is retried; a second call fails."""
        store = self._agent.store
        await store.set_ref(self._thread_id, Ref(HEAD_REF, await self.retried_at(node_id)))
        await store.end_turn(node_id, None)

    async def run(self, run_id: str, message: Message | None, *, is_new: bool = False) -> Node:
        """Do the work of a run, or continue it; return the last node."""
        if message is not None:
            name = node_id(self._thread_id, run_id)
            if is_new or await self._agent.store.node(name) is None:
                return await self._say(message, name)
        end = await end_of(self._agent, self._thread_id)
        if end is None:
            raise ToolError("This conversation has no unfinished work to continue.")
        node = end.around.last
        if node.kind == "user":
            return await self._reply(end.around)
        has_returned = (node.tool_uses or node.kind in ASIDE) and not end.questions
        if end.can_continue or has_returned:  # the node of the results is still missing
            return await self.resume(end.around)
        if node.kind == "results" and not is_by_user(end.around):
            return await self._agent.resume(end.around)
        return node

    async def resume(self, around: Surroundings) -> Node:
        by_user = is_by_user(around)
        return await (self._agent.use_tools if by_user else self._agent.resume)(around)

    async def keep(self, run_id: str, message: Message) -> bool:
        """Add the missing message of a run that ends early; return whether it exists.

        A retry must find an open question or an unread answer unchanged.
        """
        name, agent = node_id(self._thread_id, run_id), self._agent
        if await agent.store.node(name) is None:
            end = await end_of(agent, self._thread_id)
            if end is not None and _must_be_left(end):
                return False
            await self._add(message, name, _place(message, end))
        return True

    async def _say(self, message: Message, name: str) -> Node:
        agent = self._agent
        end = await end_of(self._agent, self._thread_id)
        head = None if end is None else end.around.last.id
        at = _place(message, end)
        above = Path((), {}) if at is None else None
        if end is not None and at == head:
            above = end.around
        if end is not None and _must_be_left(end):
            left = await agent.cancel_questions(end.around)
            if at == head:
                at, above = left.id, None
        said = await self._add(message, name, at)
        if above is None:
            return await self._reply(said)
        return await self._reply(surroundings_after(above, self._thread, said))

    async def _add(self, message: Message, name: str, at: str | None) -> Node:
        content, data = _content(message), {MESSAGE_ID: message.id} if message.id else {}
        new = self._agent.dependencies.node(self._thread_id, at, "user", content, data=data)
        [said] = await self._agent.add([replace(new, id=name)])
        return said

    async def _reply(self, message: Node | Surroundings) -> Node:
        said = message.last if isinstance(message, Surroundings) else message
        called = UserCall.read(self._agent, said.text)
        return await (
            self._agent.resume(message) if called is None else called.run(self._agent, said)
        )


def _place(message: Message, end: PathEnd | None) -> str | None:
    """Return the node that a message follows.

    A client that wants another reply repeats its messages up to the user's last one.
    """
    if message.at is not HEAD:
        return message.at
    if end is None:
        return None
    for node in end.around.nodes if message.id else ():
        if node.data.get(MESSAGE_ID) == message.id and node.content == _content(message):
            return node.parent_id
    return end.around.last.id


def _content(message: Message) -> tuple[Block, ...]:
    text = message.text.strip()
    return (*message.files, *([TextBlock(text=text)] if text else []))


def _must_be_left(end: PathEnd) -> bool:
    return bool(end.questions) or end.around.last.kind in ASIDE

"""One turn: the model answers, its tools run, it answers again, until it calls no more tools.

Owns the order of things and what is kept when: every node is in the store before the next thing
is done, so that whatever interrupts a turn, the thread is valid and says what happened. What the
tools of one answer do is ``phase.py``'s.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from pydantic import JsonValue

from anabranch._engine import run_shielded
from anabranch.agents._agent_tools import CalledTool, kept_with
from anabranch.agents._appending import Appends
from anabranch.agents._events import NodeAdded, TextReceived
from anabranch.agents._ports import Model
from anabranch.agents._tool_batch import Phase, ToolUse
from anabranch.agents._turn_limits import Meter, Spent, TurnLimitError
from anabranch.errors import ToolError
from anabranch.messages import (
    Block,
    ElicitReply,
    Message,
    SampleReply,
    SampleRequest,
    TextBlock,
    ToolUseBlock,
    user,
)
from anabranch.models import INTERRUPTED, SampleStream
from anabranch.tree import HEAD, Node, Ref, Result, Thread, project, project_each

if TYPE_CHECKING:
    from anabranch.agents._agent import Agent

__all__ = ["Told", "Turn"]

logger: logging.Logger = logging.getLogger("anabranch.agents")

Told: TypeAlias = tuple[Message, ...]
"""The messages of a request."""


class Turn:
    """A turn of ``agent`` in ``thread``.

    Attributes:
        meter: what it has used; shared with the branches that it opens.
        tip: the last node that it has added, ``None`` before the first.
    """

    def __init__(
        self,
        agent: Agent,
        thread: Thread,
        *,
        meter: Meter | None = None,
        limiter: asyncio.Semaphore | None = None,
        appends: Appends | None = None,
        moves_head: bool = True,
    ) -> None:
        self.agent = agent
        self.thread = thread
        self.meter: Meter = meter or Meter(agent.limits)
        self._limiter: asyncio.Semaphore = limiter or asyncio.Semaphore(agent.limits.at_once)
        self._appends: Appends = appends or Appends(agent.store)
        self._moves_head = moves_head
        self.tip: Node | None = None

    @classmethod
    async def at(cls, agent: Agent, node: Node) -> Turn:
        """Return a turn for going on at ``node``.

        Raises:
            ToolError: its thread is not there.
        """
        thread = await agent.store.thread(node.thread_id)
        if thread is None:
            raise ToolError(f"There is no thread {node.thread_id!r}.")
        return cls(agent, thread)

    def beside(self) -> Turn:
        """Return a turn within the same limits, which leaves the thread's head alone."""
        return Turn(
            self.agent,
            self.thread,
            meter=self.meter,
            limiter=self._limiter,
            appends=self._appends,
            moves_head=False,
        )

    # -- the loop ----------------------------------------------------------------------------

    async def run(self, node: Node, told: Told | None = None) -> Node:
        """Go on at ``node`` until the model calls no more tools; return the last node.

        ``told`` is what the model is told first, if it is known.

        Raises:
            TurnLimitError: a limit is reached; the thread can be gone on with.
            Exception: what the model raises.
        """
        for _ in range(self.agent.limits.iterations):
            node, told = await self.reply(node, told), None
            if not node.tool_uses:
                return node
            node = await self.use_tools(node)
        limit = self.agent.limits.iterations
        raise TurnLimitError("requests to the model", limit, limit)

    async def reply(self, node: Node, told: Told | None = None) -> Node:
        """Let the model answer at ``node`` once; return its answer's node.

        ``told`` is what the model is told, if it is known.

        Raises:
            TurnLimitError: nothing is left.
            Exception: what the model raises; what it had said before is kept.
        """
        request = self._request(told or await self._told(node))
        stream: SampleStream | None = None
        try:
            async with self._limiter:
                self.meter.check()
                async with self.agent.model.stream(request) as stream:
                    await self._watch(node, stream)
        except BaseException as error:
            if stream is not None:
                reason = "interrupted" if isinstance(error, asyncio.CancelledError) else "error"
                await run_shielded(self._try_to_keep_part(node, stream.reply, reason))
            raise
        return await self._keep(node, stream.reply)

    async def aside(
        self, prompt: str, model: Model | None = None, spent: Spent | None = None
    ) -> str:
        """Return what the model, or another, says to ``prompt`` alone; the thread has no part.

        What that has used is added to ``spent``.

        Raises:
            TurnLimitError: nothing is left.
            Exception: what the model raises.
        """
        request = SampleRequest(messages=(user(prompt),), max_tokens=self.agent.limits.max_tokens)
        async with self._limiter:
            self.meter.check()
            reply = await (model or self.agent.model).sample(request)
        cost = self.meter.add(reply.model, reply.usage)
        if spent is not None:
            spent.add(reply.usage, cost)
        return reply.text

    async def told(self, nodes: Sequence[Node]) -> list[Told | None]:
        """Return what the model will be told at each of ``nodes``, where that is cheap to know.

        That is where all of them follow on one node: the way there is read and projected once.
        """
        parents = {node.parent_id for node in nodes}
        parent = parents.pop() if len(parents) == 1 else None
        if parent is None:
            return [None] * len(nodes)
        path = await self.agent.store.path(parent)
        return list(project_each(path.nodes, nodes, path.results))

    async def _told(self, node: Node) -> Told:
        path = await self.agent.store.path(node.id)
        return project(path.nodes, path.results)

    def _request(self, told: Told) -> SampleRequest:
        tools = tuple(tool.spec for tool in self.agent.tools.values())
        return SampleRequest(
            messages=told,
            max_tokens=self.agent.limits.max_tokens,
            system_prompt=self.thread.system_prompt,
            tools=tools or None,
        )

    async def _watch(self, node: Node, stream: SampleStream) -> None:
        async for text in stream:
            await self.agent.listener(TextReceived(node.id, text))
        if stream.reply.stop_reason == INTERRUPTED:
            raise ToolError("The model's answer ended before it was complete.")

    async def _keep(self, node: Node, reply: SampleReply) -> Node:
        cost = self.meter.add(reply.model, reply.usage)
        data: dict[str, JsonValue] = {"model": reply.model, "stop_reason": reply.stop_reason}
        if cost is not None:
            data["cost"] = cost
        blocks = _with_ids_apart(reply.content)
        usage = reply.usage
        return await self.add(
            self.agent.node(self.thread.id, node.id, "assistant", blocks, usage=usage, data=data)
        )

    async def _try_to_keep_part(self, node: Node, reply: SampleReply, reason: str) -> None:
        try:
            await self._keep_part(node, reply, reason)
        except Exception:
            # Whoever has cancelled is waiting for just that, and an error of the model is not to
            # be taken for one of the store, or of a listener.
            logger.exception("what the model had said at %r could not be kept", node.id)

    async def _keep_part(self, node: Node, reply: SampleReply, reason: str) -> None:
        """Keep the text of a reply that was not received to its end, and count what it has cost."""
        if not reply.text:
            self.meter.add(reply.model, reply.usage)
            return
        said = (TextBlock(text=reply.text),)
        await self._keep(node, reply.model_copy(update={"content": said, "stop_reason": reason}))

    async def add(self, node: Node, results: Sequence[Result] = ()) -> Node:
        """Put ``node`` into the store, with results; return it."""
        refs = [Ref(HEAD, node.id)] if self._moves_head else []
        await self._appends.append([node], results, refs)
        self.tip = node
        await self.agent.listener(NodeAdded(node))
        return node

    # -- tools -------------------------------------------------------------------------------

    async def use_tools(self, caller: Node, *, returned: Collection[str] = ()) -> Node:
        """Run the tools that ``caller`` calls, all at once; return the node of their results.

        Those whose uses are in ``returned`` have been run before, and their results are there.
        """
        phase = Phase(self, caller, tip=caller, returned=frozenset(returned))
        await phase.run()
        return await phase.end()

    async def answer(self, question: Node, reply: ElicitReply) -> Node:
        """Answer ``question`` on a branch of its own, and go on from there.

        Raises:
            ToolError: the tool that has asked is not here any more, or the question comes from a
                file that lacks what is needed.
        """
        caller = await self.agent.store.node(str(kept_with(question, "caller")))
        uses = {use.id: use for use in caller.tool_uses} if caller is not None else {}
        use = uses.get(str(kept_with(question, "tool_use_id")))
        tool = self.agent.tools.get(use.name) if use is not None else None
        if caller is None or use is None or not isinstance(tool, CalledTool):
            raise ToolError(f"The tool that asked {question.id!r} is not here any more.")
        phase = Phase(self, caller, tip=question, anew=True)
        await phase.add_answer(reply)
        resumed = tool.resume(ToolUse(phase, use), question, reply)
        await phase.keep(use, await phase.guarded(use, resumed))
        return await self.run(await phase.end())


def _with_ids_apart(content: Iterable[Block]) -> tuple[Block, ...]:
    """Return ``content`` with an id of its own for each tool use; some models repeat them."""
    seen: set[str] = set()
    blocks: list[Block] = []
    for block in content:
        if isinstance(block, ToolUseBlock):
            name, number = block.id, 1
            while name in seen:
                number += 1
                name = f"{block.id}_{number}"
            seen.add(name)
            if name != block.id:
                blocks.append(block.model_copy(update={"id": name}))
                continue
        blocks.append(block)
    return tuple(blocks)

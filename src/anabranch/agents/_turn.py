"""One turn: the model replies, its tools run, it replies again, until it calls no more tools."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from anabranch.agents._agent_tools import AgentTool
from anabranch.agents._called_tool import CalledTool
from anabranch.agents._timeline import RequestMessages, Timeline
from anabranch.agents._tool_batch import ToolBatch
from anabranch.agents._tool_questions import stored_with
from anabranch.agents._turn_limits import TurnLimitError
from anabranch.errors import ToolError
from anabranch.messages import ElicitReply
from anabranch.tree import Node

__all__ = ["Turn"]


class Turn:
    """A turn along ``timeline``, in which the model may call ``tools``."""

    def __init__(self, timeline: Timeline, tools: Mapping[str, AgentTool]) -> None:
        self.timeline = timeline
        self.tools = tools

    def branch(self) -> Turn:
        """Return a turn for a branch, within the same limits."""
        return Turn(self.timeline.branch(), self.tools)

    async def run(self, node: Node, messages: RequestMessages | None = None) -> Node:
        """Continue at ``node`` until the model calls no more tools; return the last node.

        ``messages`` is the path to ``node`` as messages, where it is known already.

        Raises:
            TurnLimitError: a limit is reached; the thread can be continued.
            Exception: what the model raises.
        """
        limit = self.timeline.dependencies.limits.max_requests
        for _ in range(limit):
            node, messages = await self.timeline.reply(node, messages), None
            if not node.tool_uses:
                return node
            node = await self.use_tools(node)
        raise TurnLimitError("requests to the model", limit, limit)

    async def use_tools(self, caller: Node, *, returned: Collection[str] = ()) -> Node:
        """Run the tools that ``caller`` calls, concurrently; return the node of their results.

        ``returned`` are the ids of tool uses whose results are stored already.
        """
        return await ToolBatch(self.timeline, self.tools, caller, returned=returned).run()

    async def answer(
        self, question: Node, reply: ElicitReply, *, answered: Node | None = None
    ) -> Node:
        """Answer ``question`` below it, resume its tool, and let the model continue.

        ``answered`` is the node of this answer, if it is stored already.

        Raises:
            ToolError: the agent no longer has the tool that asked, or the question is closed,
                because it was loaded from a file.
        """
        store = self.timeline.dependencies.store
        caller = await store.node(str(stored_with(question, "caller")))
        uses = {use.id: use for use in caller.tool_uses} if caller is not None else {}
        use = uses.get(str(stored_with(question, "tool_use_id")))
        tool = self.tools.get(use.name) if use is not None else None
        if caller is None or use is None or not isinstance(tool, CalledTool):
            raise ToolError(f"The tool that asked {question.id!r} is no longer available.")
        batch = ToolBatch(self.timeline, self.tools, caller, resumed_at=answered or question)
        if answered is None:
            await batch.add_answer(reply)
        return await self.run(await batch.resume(use, tool, question, reply))

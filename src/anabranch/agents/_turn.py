"""One turn: the model replies, its tools run, it replies again, until it calls no more tools."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch._asking.answerer import Answerer
from anabranch.agents._agent_tools import AgentTool
from anabranch.agents._batch_line import BatchLine
from anabranch.agents._line_writer import LineWriter
from anabranch.agents._timeline import RequestMessages, Timeline
from anabranch.agents._tool_batch import ToolBatch
from anabranch.agents._turn_limits import TurnLimitError
from anabranch.agents._working_branch import WorkingBranch
from anabranch.tree import Node

__all__ = ["Turn"]


class Turn:
    """A turn along ``timeline``, in which the model may call ``tools``.

    ``person`` answers questions of tools at once; without one, the turn ends at them.
    """

    def __init__(
        self, timeline: Timeline, tools: Mapping[str, AgentTool], person: Answerer | None
    ) -> None:
        self.timeline = timeline
        self.tools = tools
        self.person = person

    def branch(self, working: WorkingBranch | None = None) -> Turn:
        """Return a turn for a branch, within the same limits, and those of ``working``."""
        return Turn(self.timeline.branch(working), self.tools, self.person)

    async def run(self, node: Node, messages: RequestMessages | None = None) -> Node:
        """Continue at ``node`` until the model calls no more tools, or returns from its branch.

        Returns the last node. The turn also ends where tools wait for answers: then that is a question or an answer, or
        the node that has called the tools. ``messages`` is the path to ``node`` as messages, where it is known already.

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
            working = self.timeline.branch_of_folding
            if node.kind != "results" or (working is not None and working.returned is not None):
                return node
        raise TurnLimitError("requests to the model", limit, limit)

    async def use_tools(self, caller: Node) -> Node:
        """Run the tools that ``caller`` calls, concurrently.

        Returns the node of their results; or the last question, if a tool waits for answers.
        """
        line = LineWriter(self.timeline, BatchLine([caller], {}))
        return await ToolBatch(self.timeline, self.tools, line, self.person).run()

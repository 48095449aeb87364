"""One turn: the model replies and its tools run, again and again, until the model calls no tool."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping

from anabranch._telemetry import observe_turn
from anabranch.agents._agent_tools import Continuation, UsableTool
from anabranch.agents._batch_line import ASIDE, BatchLine
from anabranch.agents._line_writer import LineWriter
from anabranch.agents._timeline import RequestMessages, Timeline
from anabranch.agents._tool_batch import ToolBatch
from anabranch.agents._turn_limits import TurnLimitError
from anabranch.agents._working_branch import WorkingBranch
from anabranch.tree import Node, Path, Surroundings


class Turn:
    def __init__(
        self, timeline: Timeline, tools: Mapping[str, UsableTool], continuation: Continuation
    ) -> None:
        self.timeline = timeline
        self.tools = tools
        self.continuation = continuation

    def branch(self, working: WorkingBranch | None = None) -> Turn:
        return Turn(self.timeline.branch(working), self.tools, self.continuation)

    async def run(self, path: Path, messages: RequestMessages | None = None) -> Node:
        """Continue ``path``, whose messages may be given, until no tool is called or tools wait."""
        limit = self.timeline.dependencies.limits.max_requests
        for _ in range(limit):
            reply, messages = await self.timeline.reply(path, messages), None
            if not reply.tool_uses:
                return reply
            writer = LineWriter(self.timeline, BatchLine([reply], path.results, path.nodes))
            last = await use_line(self, writer)
            if not self.continues_after(last):
                return last
            path = await writer.path_to(last)
        raise TurnLimitError("requests to the model", limit, limit)

    async def resume(self, around: Surroundings) -> Node:
        node = around.last
        if node.tool_uses or node.kind in ASIDE:
            return await resume(self, await LineWriter.at(self.timeline, around))
        return node if self.continuation.is_over else await self.run(around)

    def continues_after(self, node: Node) -> bool:
        working = self.timeline.branch_of_folding
        has_returned = working is not None and working.returned is not None
        return node.kind == "results" and not has_returned and not self.continuation.is_over


async def resume(turn: Turn, line: LineWriter) -> Node:
    last = await use_line(turn, line)
    return await turn.run(await line.path_to(last)) if turn.continues_after(last) else last


async def use_line(turn: Turn, line: LineWriter) -> Node:
    batch = ToolBatch(turn.timeline, turn.tools, line, turn.continuation)
    return line.after or await batch.run()


async def observed(thread_id: str, work: Awaitable[Node]) -> Node:
    with observe_turn(thread_id) as seen:
        last = await work
        if last.kind in ASIDE or last.tool_uses:
            seen.outcome = "asked"
        return last

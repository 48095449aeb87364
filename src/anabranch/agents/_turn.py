"""One turn: the model replies and its tools run, again and again, until the model calls no tool.

A turn that ended at questions continues at their answers, from any process, at any time.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Mapping
from functools import partial
from itertools import takewhile

from anabranch._telemetry import observe_turn
from anabranch.agents._agent_dependencies import AgentDependencies
from anabranch.agents._agent_tools import Continuation, UsableTool
from anabranch.agents._batch_line import ASIDE, AskedRound, BatchLine
from anabranch.agents._called_tool import keep_open
from anabranch.agents._line_writer import (
    LineWriter,
    QuestionAnsweredError,
    QuestionExpiredError,
    surroundings_of,
)
from anabranch.agents._timeline import RequestMessages, Timeline
from anabranch.agents._tool_batch import ToolBatch
from anabranch.agents._tool_questions import (
    Reply,
    TimeOver,
    call_of,
    is_in_front_end,
    reply_of,
    same_reply,
    stored_with,
)
from anabranch.agents._turn_limits import TurnLimitError
from anabranch.agents._working_branch import WorkingBranch
from anabranch.errors import ToolError
from anabranch.tree import Node, Path, Surroundings, TreeStore


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
            last = await self.use_tools(writer)
            if not self._continues_after(last):
                return last
            path = await writer.path_to(last)
        raise TurnLimitError("requests to the model", limit, limit)

    async def resume(self, around: Surroundings) -> Node:
        node = around.last
        if node.tool_uses or node.kind in ASIDE:
            return await self.resume_tools(await LineWriter.at(self.timeline, around))
        return node if self.continuation.is_over else await self.run(around)

    async def resume_tools(self, line: LineWriter) -> Node:
        last = await self.use_tools(line)
        return await self.run(await line.path_to(last)) if self._continues_after(last) else last

    async def use_tools(self, line: LineWriter) -> Node:
        batch = ToolBatch(self.timeline, self.tools, line, self.continuation)
        return line.after or await batch.run()

    async def resume_at_answer(self, line: LineWriter) -> Node:
        """Resume the tools of a line; if they have returned, return the last node after their results."""
        node, end = line.after, None
        while node is not None:
            below = await self.timeline.dependencies.store.children(node.id)
            node = next((each for each in below if each.kind not in {"user", "branch"}), None)
            end = node or end
        return end or await self.resume_tools(line)

    def _continues_after(self, node: Node) -> bool:
        working = self.timeline.branch_of_folding
        has_returned = working is not None and working.returned is not None
        return node.kind == "results" and not has_returned and not self.continuation.is_over


async def observed(thread_id: str, work: Awaitable[Node]) -> Node:
    with observe_turn(thread_id) as seen:
        last = await work
        if last.kind in ASIDE or last.tool_uses:
            seen.outcome = "asked"
        return last


async def store_answer(
    turn: Turn, around: Surroundings, question: Node, reply: Reply, *, again: bool
) -> LineWriter:
    """Store an answer to a question; return a writer at the last node below the answer.

    ``around`` is on the line of the question. ``again``: a different answer starts another line.
    """
    dependencies = turn.timeline.dependencies
    writer = await LineWriter.at(turn.timeline, around)
    _check_tool(turn, question, writer.line)
    if writer.line.is_late(question, dependencies.clock.now()):
        raise QuestionExpiredError(question.id)
    stored = await writer.answer(question, reply, partial(_hold_call, dependencies, question))
    if not same_reply(stored, reply):
        if not again and isinstance(reply_of(stored), TimeOver):
            raise QuestionExpiredError(question.id)
        if not again:
            raise QuestionAnsweredError(question.id)
        await keep_open(dependencies, call_of(question))
        await writer.answer_differently(question, reply)
    return writer


async def _hold_call(dependencies: AgentDependencies, question: Node, round_: AskedRound) -> None:
    """Extend the deadline of the call that asked, if this answer lets the call continue."""
    others = [each for each in round_.unanswered if each.id != question.id]
    waits = bool(others) and round_.until == math.inf
    until, now = -math.inf if waits else round_.until, dependencies.clock.now()
    if not await keep_open(dependencies, call_of(question), until, now=now):
        raise QuestionExpiredError(question.id, continues=False)


def check_unasked(line: BatchLine) -> None:
    """Check that no tool would start again after it has asked."""
    for use in line.unfinished:
        if (round_ := line.rounds.get(use.id)) is not None:
            question = round_.questions[-1]
            raise ToolError(
                f"The tool {use.name!r} waits at the question {question.text!r}, below this node."
                f" Answer the question {question.id}, and do not continue here."
            )


async def line_at_head(store: TreeStore, thread_id: str, node_id: str) -> Surroundings | None:
    """Return the end of the questions and answers around a node: of several lines, that at the head."""
    head = await store.around(thread_id)
    ids = [] if head is None else [node.id for node in head.nodes]
    if head is None or node_id not in ids:
        return await store.around(thread_id, node_id)
    [*_, end] = takewhile(
        lambda each: each.id == node_id or each.kind in ASIDE, head.nodes[ids.index(node_id) :]
    )
    return head if end is head.last else await store.around(thread_id, end.id)


async def find_question(
    store: TreeStore, question_id: str, at: Surroundings | None = None
) -> tuple[Node, Surroundings]:
    known = () if at is None else at.nodes
    question = next((each for each in known if each.id == question_id), None)
    if at is not None and question is not None:
        return question, at
    question = await store.node(question_id)
    if question is None or question.kind != "question":
        raise ToolError(f"There is no question {question_id!r}.")
    return question, await line_of(store, question)


async def line_of(store: TreeStore, node: Node) -> Surroundings:
    around = await line_at_head(store, node.thread_id, node.id)
    return around or await surroundings_of(store, node)


def _check_tool(turn: Turn, question: Node, line: BatchLine) -> None:
    use_id = str(stored_with(question, "tool_use_id"))
    names = {use.id: use.name for use in line.caller.tool_uses}
    if names.get(use_id) not in turn.tools and not is_in_front_end(question):
        raise ToolError(
            f"The agent no longer has the tool that asked the question {question.id!r}."
        )

"""Answers to questions of tools: stored on the line of the question, in any process, at any time."""

from __future__ import annotations

from itertools import takewhile

from anabranch._asking.answerer import Absent
from anabranch.agents._batch_line import ASIDE, BatchLine
from anabranch.agents._line_writer import LineWriter, QuestionAnsweredError
from anabranch.agents._ports import Question
from anabranch.agents._tool_questions import Given, Reply, reply_of, same_reply, stored_with
from anabranch.agents._turn import Turn
from anabranch.errors import ToolError
from anabranch.messages import ElicitReply
from anabranch.tree import HEAD, Node

__all__ = [
    "Cancelling",
    "check_unasked",
    "end_below",
    "line_at_head",
    "read_answer",
    "store_answer",
]


class Cancelling(Absent):
    """Answers for a person who has left all questions."""

    async def elicit(self, request: Question, /, *, step_id: str) -> ElicitReply:
        """Cancel."""
        del request, step_id
        return ElicitReply(action="cancel")


async def store_answer(turn: Turn, question: Node, reply: Reply, *, again: bool) -> LineWriter:
    """Store an answer in ``turn``; return the line that has it.

    Args:
        turn: in the thread of the question.
        question: the question.
        reply: the answer.
        again: whether the question may have another answer, so that this one begins a line.

    Raises:
        QuestionAnsweredError: it has another answer, and ``again`` is false.
        ToolError: the question is closed, or the agent does not have its tool.
    """
    writer = await line_at_head(turn, question)
    _check_tool(turn, question, writer.line)
    if not same_reply(await writer.answer(question, reply), reply):
        if not again:
            raise QuestionAnsweredError(question.id)
        await writer.answer_differently(question, reply)
    return writer


async def read_answer(turn: Turn, question: Node) -> Given | None:
    """Return the answer to a question on its line, ``None`` while it has none."""
    writer = await line_at_head(turn, question)
    answer = writer.line.answers.get(question.id)
    return None if answer is None or not answer.data else reply_of(answer)


async def end_below(turn: Turn, writer: LineWriter) -> Node | None:
    """Return the last node of a line that has gone on, ``None`` if it has not."""
    node, end = writer.after, None
    while node is not None:
        below = await turn.timeline.dependencies.store.children(node.id)
        node = next((each for each in below if each.kind not in {"user", "branch"}), None)
        end = node or end
    return end


def check_unasked(line: BatchLine) -> None:
    """Check that no tool of a line that would run from its beginning has asked a question.

    Raises:
        ToolError: one has.
    """
    for use in line.unfinished:
        if (round_ := line.rounds.get(use.id)) is not None:
            question = round_.questions[-1]
            raise ToolError(
                f"The tool {use.name!r} has asked {question.text!r} and continues from there:"
                f" answer that question ({question.id}), below this node."
            )


async def line_at_head(turn: Turn, node: Node) -> LineWriter:
    """Return the line that ``node`` is on: of several, the one at the thread's head."""
    store, end = turn.timeline.dependencies.store, node
    head = (await store.refs(node.thread_id)).get(HEAD)
    nodes = list((await store.path(head)).nodes) if head is not None else []
    if node in nodes:
        below = nodes[nodes.index(node) + 1 :]
        end = [node, *takewhile(lambda each: each.kind in ASIDE, below)][-1]
    return await LineWriter.at(turn.timeline, end)


def _check_tool(turn: Turn, question: Node, line: BatchLine) -> None:
    use_id = str(stored_with(question, "tool_use_id"))
    names = {use.id: use.name for use in line.caller.tool_uses}
    if names.get(use_id) not in turn.tools:
        raise ToolError(f"The tool that asked {question.id!r} is no longer available.")

"""Adds questions, answers and results below the node that calls tools, from any process.

A node's id follows from its parent's, so the store refuses the second of two processes, which
continues from the node of the first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from pydantic import JsonValue

from anabranch.agents._agent_dependencies import name_after, require_node
from anabranch.agents._agent_tools import Waiting
from anabranch.agents._batch_line import ASIDE, AskedRound, BatchLine
from anabranch.agents._events import ToolEnded
from anabranch.agents._timeline import Timeline
from anabranch.agents._tool_questions import (
    Given,
    answer_data,
    answer_text,
    asked_text,
    dump_ask,
    question_id,
    reply_of,
    same_reply,
)
from anabranch.agents._turn_limits import SideUsage
from anabranch.errors import ToolError
from anabranch.tree import (
    Kind,
    Node,
    Path,
    RefusedError,
    Result,
    Surroundings,
    TreeStore,
    longer_path,
)


class QuestionAnsweredError(ToolError):
    """The question already has a different answer."""

    def __init__(self, question_id: str) -> None:
        super().__init__(f"The question {question_id!r} has been answered differently before.")


class QuestionExpiredError(ToolError):
    """The time for an answer to the question is over.

    Attributes:
        continues: whether the tool continues without an answer; otherwise, its call has ended.
    """

    def __init__(self, question_id: str, *, continues: bool = True) -> None:
        self.continues = continues
        then = "its tool continues without one" if continues else "its call has ended"
        super().__init__(f"The time for an answer to the question {question_id!r} is over: {then}.")


class LineWriter:
    """Adds the questions, answers and results of a tool batch at the end of ``line``.

    Attributes:
        after: the ``results`` node, if another process, or an earlier turn, has ended the batch.
        is_current: whether the store accepted this writer's nodes, so that no other node follows.
    """

    def __init__(self, timeline: Timeline, line: BatchLine) -> None:
        self.line = line
        self.after: Node | None = None
        self.is_current = False
        self._timeline = timeline
        self._lock = asyncio.Lock()
        self._end: Path | None = None

    @classmethod
    async def at(cls, timeline: Timeline, around: Surroundings) -> LineWriter:
        line = BatchLine.read(around)
        if line is None:
            raise ToolError(
                f"The node {around.last.id!r} belongs to no call of a tool, so no tool can continue"
                " there."
            )
        writer = cls(timeline, line)
        await writer._follow(around)
        return writer

    async def refresh(self) -> None:
        await self._follow(await self._read(self.line.last))

    async def _read(self, node: Node) -> Surroundings:
        around = await surroundings_of(self._timeline.dependencies.store, node)
        self.line = BatchLine.read(around) or self.line
        return around

    async def _follow(self, around: Surroundings) -> None:
        while True:
            # Answers that start other lines come later than the node that continues this line.
            below = around.below[around.last.id]
            self.after = next((each for each in below if each.kind in (*ASIDE, "results")), None)
            if self.after is None or self.after.kind == "results":
                return
            around = await self._read(self.after)

    # -- additions of a batch -------------------------------------------------------------------

    async def ask(
        self, tool_use_id: str, asked: Waiting, after: AskedRound | None, used: SideUsage
    ) -> None:
        """Store the questions of the round ``after`` another, unless another process has stored them."""
        usage, data = used.take()
        before = None if after is None else after.id

        def questions(line: BatchLine) -> list[Node]:
            if line.has_returned(tool_use_id) or line.round_id(tool_use_id) != before:
                return []
            nodes: list[Node] = []
            for ask in asked.asks:
                node = self._node(nodes[-1] if nodes else line.last, "question", asked_text(ask))
                timed = {} if asked.until is None else {"until": asked.until}
                first = {"state": asked.state, **timed, **data} if not nodes else {}
                stored: dict[str, JsonValue] = {
                    "caller": line.caller.id,
                    "tool_use_id": tool_use_id,
                    "call": asked.call,
                    "round": nodes[0].id if nodes else node.id,
                    **dump_ask(ask),
                    **first,
                }
                nodes.append(replace(node, data=stored, usage=None if nodes else usage))
            return nodes

        await self._add(questions)

    async def answer(
        self,
        question: Node,
        reply: Given,
        hold: Callable[[AskedRound], Awaitable[None]] | None = None,
    ) -> Node:
        """Store the answer to a question whose call ``hold`` keeps open; return the first answer.

        ``hold`` is awaited before each attempt, so it may run several times.
        """

        def answer(line: BatchLine) -> list[Node]:
            if question.id in line.answers:
                return []
            data = answer_data(question, reply, other=False)
            node = self._node(line.last, "answer", answer_text(reply))
            return [replace(node, data=data)]

        async def held(line: BatchLine) -> None:
            if hold is not None:
                await hold(line.round_of(question))

        await self._add(answer, ready=held)
        return self.line.answers[question.id]

    async def answer_differently(self, question: Node, reply: Given) -> None:
        """Move to the line on which an answered question has ``reply``, or start that line.

        The lines share the nodes above the first answer, and the results of other tools.
        """
        dependencies = self._timeline.dependencies
        first = self.line.answers[question.id]
        parent_id = str(first.parent_id)
        for other in await dependencies.store.children(parent_id):
            if _answers(other, question) and same_reply(other, reply):
                self.line = self.line.above(first).extended([other])
                await self.refresh()
                return
        data = answer_data(question, reply, other=True)
        thread_id, text = self._timeline.thread.id, answer_text(reply)
        begun = dependencies.node(thread_id, parent_id, "answer", text, data=data)
        nodes, above = [begun], self.line.above(first)
        for node in self.line.nodes[len(above.nodes) + 1 :]:
            asked = next((each for each in above.nodes if _answers(node, each)), None)
            if asked is not None:
                copied = self._node(nodes[-1], "answer", node.text)
                same = answer_data(asked, reply_of(node), other=False)
                nodes.append(replace(copied, data=same))
        use_id = str(question.data["tool_use_id"])
        held = [(use.id, self.line.result(use.id)) for use in self.line.caller.tool_uses]
        results = [
            replace(result, node_id=begun.id)
            for other_id, result in held
            if result is not None and other_id != use_id and above.result(other_id) != result
        ]
        await self._timeline.add_all(nodes, results)
        self.line, self.after = above.extended(nodes, results), None

    async def record(self, results: Sequence[Result], *events: ToolEnded) -> None:
        await self._timeline.dependencies.write(results=results, events=events)
        self.line = self.line.extended([], results)

    async def finish(
        self, results: Sequence[Result], used: SideUsage, last: Sequence[ToolEnded] = ()
    ) -> Node | None:
        """Add the node of the results, with the ``last`` that no write has stored.

        Return ``None`` if another process has added that node.
        """
        usage, data = used.take()

        def ending(line: BatchLine) -> list[Node]:
            node = self._node(line.last, "results")
            return [] if self.after is not None else [replace(node, usage=usage, data=data)]

        if not (added := await self._add(ending, results, last)):
            if last:
                await self.record([each.result for each in last], *last)
            return None
        self._end = longer_path(self.line.path, added, results)
        return added[-1]

    async def path_to(self, node: Node) -> Path:
        return self._end or await self._timeline.dependencies.store.path(node.id)

    # -- places on the line ------------------------------------------------------------------

    async def _add(
        self,
        nodes_for: Callable[[BatchLine], list[Node]],
        results: Sequence[Result] = (),
        events: Sequence[ToolEnded] = (),
        ready: Callable[[BatchLine], Awaitable[None]] | None = None,
    ) -> list[Node]:
        """Add nodes at the end of the line, and again if another process adds nodes there first."""
        async with self._lock:
            while nodes := nodes_for(self.line):
                if ready is not None:
                    await ready(self.line)
                try:
                    await self._timeline.add_all(nodes, results, events)
                except RefusedError:
                    last = self.line.last.id
                    await self.refresh()
                    if self.line.last.id == last and self.after is None:
                        raise
                    continue
                if nodes[-1].kind in ASIDE:
                    self.line = self.line.extended(nodes)
                self.is_current = True
                break
            return nodes

    def _node(self, parent: Node, kind: Kind, text: str = "") -> Node:
        node = self._timeline.dependencies.node(parent.thread_id, parent.id, kind, text or ())
        return replace(node, id=name_after(parent.id))


async def surroundings_of(store: TreeStore, node: Node | Surroundings) -> Surroundings:
    if isinstance(node, Surroundings):
        return node
    require_node(node)
    around = await store.around(node.thread_id, node.id)
    if around is None:
        raise ToolError(f"There is no node {node.id!r} in the thread {node.thread_id!r}.")
    return around


def _answers(node: Node, question: Node) -> bool:
    return node.kind == "answer" and question_id(node) == question.id

"""The work of a turn: from a person's message, or from where its thread is, to its end or its next questions.

It is done from the tree alone, so that another process can go on with it where one has died.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import dropwhile, takewhile

from anabranch.agents import Agent, end_of, turn_of
from anabranch.agents._batch_line import result_at
from anabranch.agents._path_end import PathEnd
from anabranch.chat._session.typed_values import read_arguments
from anabranch.chat._web.run_input import HEAD, Message, node_id
from anabranch.chat._web.shown_node import is_interrupted
from anabranch.errors import ToolError
from anabranch.messages import Block, TextBlock, ToolUseBlock
from anabranch.models import INTERRUPTED
from anabranch.tree import HEAD as HEAD_REF
from anabranch.tree import Node, Ref, Result, Surroundings, turn_has_ended
from anabranch.tree._person_view import clear_turn_end

ASIDE = {"question", "answer"}
"""Kinds of nodes between one that calls tools and their results."""

BATCH = {*ASIDE, "results"}
"""Kinds of nodes that follow one that calls tools."""


class TurnWork:
    """The work of turns in one thread.

    Args:
        agent: does it; that of a run adds each of its nodes once, in however many processes.
        thread_id: the thread.
        report: is given the nodes from which the work goes on, which others may not have reported.
    """

    def __init__(
        self,
        agent: Agent,
        thread_id: str,
        report: Callable[[Sequence[Node]], Awaitable[object]] | None = None,
    ) -> None:
        self._agent = agent
        self._thread_id = thread_id
        self._report = report

    async def check(self, message: Message) -> None:
        """Check that a message can be said.

        Raises:
            ToolError: it is blank, or goes below what is no node of the thread.
            SessionError: it calls a tool with arguments that cannot be read.
            InvalidArgumentsError: they do not fit.
        """
        if not message.text.strip() and not message.files:
            raise ToolError("A message must not be blank.")
        if message.at is not HEAD and message.at is not None:
            node = await self._agent.store.node(message.at)
            if node is None or node.thread_id != self._thread_id:
                raise ToolError(f"There is no node {message.at!r} in this conversation.")
        self._called(message.text)

    async def check_retry(self, node_id: str) -> None:
        """Check that a turn ended at a node without a reply, and was not tried again.

        Raises:
            ToolError: none did, or it was.
        """
        await self._retried_at(node_id)

    async def _retried_at(self, node_id: str) -> str:
        """Return the node from which a turn is tried again that ended at ``node_id`` without a reply.

        It is the last one that the model, or a tool that the person called, was to reply to; or the
        end itself, if a tool has returned there, or has an answer: what was done is not done again.

        Raises:
            ToolError: no turn ended there.
        """
        around = await self._agent.store.around(self._thread_id, node_id)
        if around is None or not turn_has_ended(around):
            raise ToolError(f"No turn ended without a reply at {node_id!r}.")
        is_answered = around.last.kind in ASIDE and None in _results(around)
        if is_answered or _has_returned(around):
            return node_id
        kinds = {"user"} if _is_by_person(around) else {"user", "results"}
        replied = (each for each in reversed(around.nodes) if each.kind in kinds)
        return next(replied).id

    async def go_back(self, node_id: str) -> None:
        """Move the thread's head to where the turn is tried again that ended at a node: once.

        A run without a message goes on from there.

        Raises:
            ToolError: no turn ended there, or it is tried again already.
        """
        store = self._agent.store
        await store.set_ref(self._thread_id, Ref(HEAD_REF, await self._retried_at(node_id)))
        await clear_turn_end(store, node_id)

    async def run(self, run_id: str, message: Message | None, *, is_new: bool = False) -> Node:
        """Do the work of a run, or go on with it; return the turn's last node.

        ``is_new`` says that nothing of it is done yet.

        Raises:
            Exception: what the model raises, and what :class:`~anabranch.agents.Agent` says.
        """
        if message is not None:
            name = node_id(self._thread_id, run_id)
            if is_new or await self._agent.store.node(name) is None:
                return await self._reply(await self._say(message, name))
        end = await self._end()
        if end is None:
            raise ToolError("There is nothing to go on with in this conversation.")
        node = end.around.last
        if node.kind == "user":
            return await self._reply(node)
        has_returned = (node.tool_uses or node.kind in ASIDE) and not end.questions
        if end.can_go_on or has_returned:  # and then the node of the results is not there yet
            return await self.go_on(end.around)
        if node.kind == "results" and not _is_by_person(end.around):
            return await self._agent.go_on(end.around)
        return node

    async def go_on(self, around: Surroundings) -> Node:
        """Go on at a question or an answer; the model follows unless the person called the tool."""
        by_person = _is_by_person(around)
        return await (self._agent.use_tools if by_person else self._agent.go_on)(around)

    async def keep(self, run_id: str, message: Message) -> bool:
        """Add the message of a run that ends before it was said; return whether it is there.

        It is not where a question is open, or a tool has an answer: who tries the message again
        finds them as they are.
        """
        name, agent = node_id(self._thread_id, run_id), self._agent
        if await agent.store.node(name) is None:
            end = await end_of(agent, self._thread_id)
            if end is not None and _must_be_left(end):
                return False
            head = None if end is None else end.around.last.id
            await self._add(message, name, head if message.at is HEAD else message.at)
        return True

    async def _say(self, message: Message, name: str) -> Node:
        """Add a message; open questions are left first: their tools read that they were cancelled."""
        agent = self._agent
        end = await self._end()
        head = None if end is None else end.around.last.id
        at = head if message.at is HEAD else message.at
        if end is not None and _must_be_left(end):
            left = await agent.cancel_questions(end.around)
            at = left.id if at == head else at
        return await self._add(message, name, at)

    async def _add(self, message: Message, name: str, at: str | None) -> Node:
        text = message.text.strip()
        content: list[Block] = [*message.files, *([TextBlock(text=text)] if text else [])]
        new = self._agent.dependencies.node(self._thread_id, at, "user", content)
        [said] = await self._agent.add([replace(new, id=name)])
        return said

    async def _end(self) -> PathEnd | None:
        """Return the end of the path to the head; what is on it has been reported."""
        end = await end_of(self._agent, self._thread_id)
        if end is not None and self._report is not None:
            await self._report(end.around.nodes)
        return end

    async def _reply(self, message: Node) -> Node:
        called = self._called(message.text)
        return await (self._agent.go_on(message) if called is None else called(message))

    def _called(self, text: str) -> Callable[[Node], Awaitable[Node]] | None:
        """Return what follows a message that calls a tool, ``None`` for any other message."""
        name, _, values = text.strip().removeprefix("/").partition(" ")
        tool = self._agent.tools.get(name) if text.lstrip().startswith("/") else None
        if tool is None:
            return None
        arguments = read_arguments(tool, values.strip())

        async def work(message: Node) -> Node:
            agent = self._agent
            use = ToolUseBlock(id=agent.dependencies.naming("node"), name=name, input=arguments)
            node = agent.dependencies.node
            caller = node(self._thread_id, message.id, "assistant", (use,), data={"by": "person"})
            [caller] = await agent.add([caller])
            return await (await turn_of(agent, caller)).use_tools(caller)

        return work


def has_replied(around: Surroundings) -> bool:
    """Whether a turn has its whole reply at the last node: the model's, or that of a person's tool."""
    last = around.last
    if last.kind == "results":
        return _is_by_person(around) and _has_returned(around)
    is_cut = last.data.get("stop_reason") in {"error", INTERRUPTED}
    return last.kind == "assistant" and not last.tool_uses and not is_cut


def _must_be_left(end: PathEnd) -> bool:
    """Whether a message there leaves questions, or tools with answers, that go on without one."""
    return bool(end.questions) or end.around.last.kind in ASIDE


def _has_returned(around: Surroundings) -> bool:
    """Whether a tool has a result that is called at the last node, or before what was asked there."""
    found = filter(None, _results(around))
    contents = (each.content if each.pending is None else each.pending for each in found)
    return not all(map(is_interrupted, contents))


def _results(around: Surroundings) -> list[Result | None]:
    """Return the results of the tools with which a path ends, each ``None`` if there is none."""
    back = dropwhile(lambda each: each.kind in BATCH, reversed(around.nodes))
    caller = next(back, around.last)
    return [result_at(around, use.id) for use in caller.tool_uses]


def _is_by_person(around: Surroundings) -> bool:
    turn = takewhile(lambda each: each.kind != "user", reversed(around.nodes))
    return any(each.data.get("by") == "person" for each in turn)

"""An agent: a model with tools that replies in threads of the conversation tree.

An agent has no state of its own between turns; all of it is in the store.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

from anabranch._aio import Clock, SystemClock
from anabranch._asking.answerer import Absent, Answerer
from anabranch._asking.host import Capabilities
from anabranch._budget import Limits
from anabranch._durable.job import Durability
from anabranch._durable.store import CallStore
from anabranch.agents._agent_dependencies import (
    AgentDependencies,
    durability_of,
    offered,
    require_parts,
)
from anabranch.agents._agent_tools import AgentTool, Continuation
from anabranch.agents._answers import (
    Cancelling,
    check_unasked,
    end_below,
    find_question,
    line_of,
    store_answer,
)
from anabranch.agents._batch_line import BatchLine
from anabranch.agents._branch_progress import OpenFork, open_fork
from anabranch.agents._call_expiry import reaper_of
from anabranch.agents._called_tool import CalledTool
from anabranch.agents._events import Listener, ignore_event
from anabranch.agents._front_end import FrontEnd
from anabranch.agents._front_end_tools import FrontEndTools
from anabranch.agents._line_writer import LineWriter, surroundings_of
from anabranch.agents._meter import Meter
from anabranch.agents._path_end import PathEnd
from anabranch.agents._ports import Model, Naming, random_names
from anabranch.agents._timeline import Timeline
from anabranch.agents._tool_questions import Given, Reply, reply_of
from anabranch.agents._tool_set import ToolSet, ToolSource
from anabranch.agents._turn import Turn, observed, resume, use_line
from anabranch.agents._turn_limits import TurnLimits, spent_in_turn
from anabranch.engines import Engine, InProcessEngine
from anabranch.errors import ToolError
from anabranch.messages import Block, TextBlock
from anabranch.tool import Tool
from anabranch.tree import (
    HEAD,
    Node,
    Ref,
    Result,
    Surroundings,
    Thread,
    TreeStore,
    project,
    store_files,
)


class Agent:
    """Replies in threads.

    Args:
        store: stores the threads.
        model: replies.
        tools: what the model may call: anabranch tools, or tools written for agents, such as
            :class:`~anabranch.agents.BranchSelf`, and sources of tools, such as
            :class:`~anabranch.agents.RemoteTools` and :class:`~anabranch.agents.Folding`.
        person: answers the questions of tools at once, with the node of the question as
            ``step_id``. Without one, and with ``capabilities`` that offer questions, a turn ends
            at them, and :meth:`answer` continues it; by default, no question can be asked.
        limits: of each turn.
        tool_limits: of each call of a tool, in addition to the tool's own.
        listener: receives the events of a turn.
        clock: gives the time; by default, the system's.
        naming: names threads and nodes; by default, at random.
        capabilities: what its tools may ask for; by default, questions as ``person`` declares
            them, and samples, which ``model`` answers.
        calls: stores the calls of tools, so that their effects happen once whatever dies; by
            default, only what a question needs is stored, in the tree.
        code_version: the version of the tools' code, under which ``calls`` are stored; by default,
            a digest of the files in which the tools are defined.

    Attributes:
        tools: all tools, by name, as they are at present.
        dependencies: everything else that was given.
    """

    def __init__(  # noqa: PLR0913 - the surroundings of an agent, by keyword
        self,
        store: TreeStore,
        model: Model,
        *,
        tools: Iterable[Tool[Any] | AgentTool | ToolSource] = (),
        person: Answerer | None = None,
        limits: TurnLimits | None = None,
        tool_limits: Limits | None = None,
        listener: Listener = ignore_event,
        clock: Clock | None = None,
        naming: Naming = random_names,
        capabilities: Capabilities | None = None,
        calls: CallStore | Durability | None = None,
        code_version: str | None = None,
    ) -> None:
        require_parts("Agent()", store, model, capabilities)
        self.tools: ToolSet = ToolSet(tools)
        self.tools.warn_of_too_many(model)
        self.dependencies: AgentDependencies = AgentDependencies(
            store,
            model,
            self.tools.specs,
            person,
            limits or TurnLimits(),
            tool_limits or Limits(),
            listener,
            clock or SystemClock(),
            naming,
            capabilities or offered((person or Absent()).capabilities, model),
            durability_of(calls),
            "" if calls is None else self.tools.version(code_version),
        )

    @property
    def store(self) -> TreeStore:
        """Where the threads are stored."""
        return self.dependencies.store

    def of_run(self, run_id: str, front_end: FrontEnd | None = None) -> Agent:
        """Return this agent as it works on one run of a conversation, in whatever process.

        What it adds is named after its place: so what two processes add there is the same node. The
        model is offered the tools of the run's ``front_end``, and reads its context: a turn ends with
        the call of such a tool, and :meth:`answer` continues it with a :class:`FrontEndResult`.
        """
        agent, given = copy(self), front_end or FrontEnd()
        agent.tools = self.tools.beside(FrontEndTools(given.tools))
        agent.dependencies = replace(
            self.dependencies, run=run_id, front_end=given, tool_specs=agent.tools.specs
        )
        return agent

    # -- the tree ----------------------------------------------------------------------------

    async def begin(self, *, system_prompt: str | None = None, title: str = "") -> Thread:
        """Create a thread without nodes, and return it."""
        name, now = self.dependencies.naming("thread"), self.dependencies.clock.now()
        thread = Thread(name, now, system_prompt, title)
        await self.store.create_thread(thread)
        return thread

    async def add(
        self, nodes: Sequence[Node], results: Sequence[Result] = (), *, head: bool = True
    ) -> list[Node]:
        """Store ``nodes`` with results of tools, and return them; the head moves to the last."""
        refs = [Ref(HEAD, nodes[-1].id)] if head else []
        return await self.dependencies.add(nodes, results, refs)

    async def head(self, thread_id: str) -> str | None:
        """Return the id of the node at the thread's head, ``None`` if it has no head."""
        return (await self.store.refs(thread_id)).get(HEAD)

    # -- turns -------------------------------------------------------------------------------

    async def say(
        self, thread_id: str, content: str | Iterable[Block], *, at: str | None = None
    ) -> Node:
        """Add a user message and run a turn; return the turn's last node.

        Args:
            thread_id: the thread.
            content: the message: a text, or blocks, such as images and documents.
            at: the node that the message follows; by default, the thread's head.

        Raises:
            ToolError: the thread does not exist, or the message is blank.
            TurnLimitError: a limit of the turn is reached.
            Exception: what the model raises. The message, and all nodes before the error, stay.
        """
        if await self.store.thread(thread_id) is None:
            raise ToolError(f"There is no thread {thread_id!r}.")
        parent = at if at is not None else await self.head(thread_id)
        [message] = await self.put(thread_id, [(parent, content)])
        return await self.go_on(message)

    async def put(
        self,
        thread_id: str,
        messages: Sequence[tuple[str | None, str | Iterable[Block]]],
        *,
        head: bool = True,
    ) -> list[Node]:
        """Add user messages, each after the node with the given id, without running a turn.

        Files in their blocks are stored beside the tree; the messages refer to them.

        Raises:
            ToolError: a message is blank; then no message is added.
        """
        contents = [_blocks(content) for _, content in messages]
        if not all(map(_says_something, contents)):
            raise ToolError("A message must not be blank.")
        stored = [await store_files(self.store, thread_id, content) for content in contents]
        node, parents = self.dependencies.node, [parent for parent, _ in messages]
        nodes = [
            node(thread_id, parent, "user", content)
            for parent, content in zip(parents, stored, strict=True)
        ]
        return await self.add(nodes, head=head)

    async def go_on(self, node: Node | Surroundings) -> Node:
        """Run a turn from ``node`` on, and return its last node.

        If ``node`` calls tools, those that have no result yet are run first. If it is a question of
        a tool, or an answer, the tools of its line go on as far as they have answers. If it is in a
        branch whose tool has not returned, that branch goes on, and then, when all branches have
        ended, the tool's caller. If the turn is cancelled, what was received until then is stored,
        and the thread is valid. A node can be given as its surroundings, where these were just read.

        Raises:
            ToolError: one of these tools has asked a question. Running it again would repeat what
                it did before the question; :meth:`answer` resumes it.
            TurnLimitError: a limit of the turn is reached.
            Exception: what the model raises.
        """
        around = await surroundings_of(self.store, node)
        return await observed(around.thread.id, self._go_on(around))

    async def _go_on(self, around: Surroundings) -> Node:
        node, turn = around.last, _turn_in(self, around.thread, around.last)
        if (fork := None if node.kind == "user" else open_fork(around)) is not None:
            return await self._go_on_in(fork)
        if BatchLine.read(around) is None:
            return await turn.run(node, project(around.nodes, around.results))
        writer = await LineWriter.at(turn.timeline, around)
        if node.tool_uses:
            check_unasked(writer.line)
        return await resume(turn, writer)

    async def use_tools(self, node: Node | Surroundings) -> Node:
        """Go on with the tools of a line as :meth:`go_on` does, without the model."""
        around = await surroundings_of(self.store, node)
        turn = _turn_in(self, around.thread, around.last)
        writer = await LineWriter.at(turn.timeline, around)
        return await observed(around.thread.id, use_line(turn, writer))

    async def _go_on_in(self, fork: OpenFork) -> Node:
        """Go on in these branches, and then with the tools that have opened them."""
        around = await line_of(self.store, fork.caller)
        turn = _turn_in(self, around.thread, around.last)
        turn.continuation = replace(turn.continuation, within=fork.within)
        writer = await LineWriter.at(turn.timeline, around)
        return await end_below(turn, writer) or await resume(turn, writer)

    async def answer(self, question_id: str, reply: Reply) -> Node:
        """Answer a question of a tool, in any process, at any time; return the turn's last node.

        The tool goes on when all that it has asked in this round is answered; then, when all tools
        have returned, the model continues. Steps that had finished are replayed from the journal.

        A question that is answered again, differently, begins another line of the conversation,
        and of the call: effects after the question happen on each, under different keys. The same
        answer again goes on with the line that it has begun, if something is left to do there.
        In a branch, an answer is final until the tool that has opened the branch has returned.

        Raises:
            QuestionAnsweredError: such an answer would be another one.
            QuestionExpiredError: the question's time is over, and it has no answer; or, in a
                branch, its tool goes on without one.
            ToolError: the question does not exist, or the agent does not have its tool.
            TurnLimitError: a limit of the turn is reached.
            Exception: what the model raises.
        """
        question, around = await find_question(self.store, question_id)
        return await observed(question.thread_id, self._answer(question, around, reply))

    async def _answer(self, question: Node, around: Surroundings, reply: Reply) -> Node:
        turn, fork = self._turn_at(around)
        writer = await store_answer(turn, around, question, reply, again=fork is None)
        if fork is not None:
            return await self._go_on_in(fork)
        return await end_below(turn, writer) or await resume(turn, writer)

    async def add_answer(
        self, question_id: str, reply: Reply, *, again: bool = False, at: Surroundings | None = None
    ) -> Node:
        """Store the first answer to a question, without going on; :meth:`go_on` does.

        Returns the last node of the question's line. With this same answer, nothing is changed.
        With ``again``, another answer begins another line, as for :meth:`answer`. ``at`` is the
        end of the question's line, where that was just read. A call whose questions are all
        answered does not expire, however late it goes on.

        Raises:
            QuestionAnsweredError: it has been answered differently, maybe just now in another
                process.
            QuestionExpiredError: its time is over, and its tool goes on without an answer.
            ToolError: as for :meth:`answer`.
        """
        question, around = await find_question(self.store, question_id, at)
        turn, fork = self._turn_at(around)
        writer = await store_answer(turn, around, question, reply, again=again and fork is None)
        return writer.after or writer.line.last

    def _turn_at(self, around: Surroundings) -> tuple[Turn, OpenFork | None]:
        """Return a turn at a question; in a branch, the thread's head stays on the main path."""
        turn, fork = _turn_in(self, around.thread, around.last), open_fork(around)
        turn.timeline.moves_head = fork is None
        return turn, fork

    async def cancel_questions(self, node: Node | Surroundings) -> Node:
        """Answer all open questions of a line with ``cancel``; return the node where it ends.

        The tools go on with that, also if they ask more, until they have returned. The model is
        not asked, and branches that wait end there. ``node`` is a question, or any other node of
        the line, or of a branch below it.

        Raises:
            ToolError: no tool waits there.
        """
        around = await surroundings_of(self.store, node)
        turn, fork = _turn_in(self, around.thread, around.last), open_fork(around)
        turn.continuation = Continuation(Cancelling(), is_left=True)
        if fork is not None:
            around = await line_of(self.store, fork.caller)
        return await use_line(turn, await LineWriter.at(turn.timeline, around))

    async def open_questions(self, node: Node | Surroundings) -> list[Node]:
        """Return the questions that wait for an answer on the line of ``node``, in their order.

        Those in branches that its tools have opened follow. Where a turn ends at questions, its
        last node is such a ``node``.
        """
        around = await surroundings_of(self.store, node)
        return list((await PathEnd.read(self.store, around)).questions)

    async def cut_off(self, thread_id: str, asleep: Container[tuple[str, str]] = ()) -> Node | None:
        """Return the node at the head if tools were cut off there, as by a crash.

        These are tools that have neither returned nor been interrupted, and wait for no answer, or
        have branches that wait for none; :meth:`go_on` continues them. The uses that are known to
        be ``asleep``, each after the id of its caller, are not among them.
        """
        end = await end_of(self, thread_id, asleep=asleep)
        return end.around.last if end is not None and end.can_go_on else None

    async def interrupt_tools(self, thread_id: str) -> None:
        """Undo what tools at the head have done that sleep, or were cut off: they have ended.

        What waits for an answer goes on waiting; but where a tool has opened branches, and one of
        them is stopped, all of them are, and their questions are left. The model is not asked.
        """
        end = await end_of(self, thread_id)
        if end is not None and end.can_go_on:
            turn = await turn_of(self, end.around.last)
            turn.continuation = Continuation(is_stopped=True)
            await use_line(turn, await LineWriter.at(turn.timeline, end.around))

    def suspend(self) -> None:
        """Have turns that are interrupted from now on continued later: the process ends.

        Without this, what an interrupted tool has done is undone, and the tool has ended; and what
        the model had said of an interrupted reply is stored.
        """
        self.dependencies.suspension.begin()

    async def expire_calls(self, engine: Engine | None = None) -> NoReturn:
        """Undo what tools have done whose questions are not answered in time, until cancelled.

        Run it in a task, in one process or several; with an ``engine``, one of them does it. What
        has expired cannot be answered any more.

        Raises:
            ValueError: the agent has no store of calls.
        """
        tools = {
            name: called.tool
            for name, called in self.tools.items()
            if isinstance(called, CalledTool)
        }
        await reaper_of(self.dependencies, tools).run(
            engine or InProcessEngine(self.dependencies.clock)
        )


async def given_answer(
    agent: Agent, question: Node, at: Surroundings | None = None
) -> Given | None:
    """Return the answer to a question, ``None`` while it has none.

    ``at`` is the end of the question's line, where that was just read.
    """
    around = at or await line_of(agent.store, question)
    writer = await LineWriter.at(_turn_in(agent, around.thread, around.last).timeline, around)
    answer = writer.line.answers.get(question.id)
    return None if answer is None or not answer.data else reply_of(answer)


async def end_of(
    agent: Agent,
    thread_id: str,
    node_id: str | None = None,
    *,
    asleep: Container[tuple[str, str]] = (),
) -> PathEnd | None:
    """Return the end of the path to a node, by default the head; ``None`` if there is none."""
    around, now = await agent.store.around(thread_id, node_id), agent.dependencies.clock.now()
    if around is None:
        return None
    return await PathEnd.read(agent.store, around, asleep, now)


async def turn_of(agent: Agent, node: Node) -> Turn:
    """Return a turn in the thread of ``node``; nothing has happened in it yet.

    Raises:
        ToolError: the thread does not exist.
    """
    thread = await agent.store.thread(node.thread_id)
    if thread is None:
        raise ToolError(f"There is no thread {node.thread_id!r}.")
    return _turn_in(agent, thread, node)


def _turn_in(agent: Agent, thread: Thread, node: Node) -> Turn:
    dependencies = agent.dependencies
    earlier = partial(spent_in_turn, agent.store, node)
    meter = Meter(dependencies.limits, None if node.kind == "user" else earlier)
    continuation = Continuation(dependencies.person)
    return Turn(Timeline(dependencies, thread, meter), agent.tools, continuation)


def _blocks(content: str | Iterable[Block]) -> tuple[Block, ...]:
    return (TextBlock(text=content),) if isinstance(content, str) else tuple(content)


def _says_something(content: Iterable[Block]) -> bool:
    return any(not isinstance(block, TextBlock) or block.text.strip() for block in content)

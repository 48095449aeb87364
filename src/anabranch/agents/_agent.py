"""An agent: a model with tools that replies in threads of the conversation tree."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

from anabranch._aio import Clock, SystemClock
from anabranch._asking import Absent, Answerer, Capabilities
from anabranch._budget import Limits
from anabranch._durable import CallStore, Durability
from anabranch.agents._agent_dependencies import (
    AgentDependencies,
    Model,
    Naming,
    durability_of,
    offered,
    random_names,
    require_id,
    require_parts,
)
from anabranch.agents._agent_tools import AgentTool, Continuation
from anabranch.agents._batch_line import BatchLine
from anabranch.agents._branch_progress import OpenFork, PathEnd, open_fork
from anabranch.agents._called_tool import CalledTool, reaper_of
from anabranch.agents._events import Event, awaited, ignore_event
from anabranch.agents._line_writer import LineWriter, surroundings_of
from anabranch.agents._timeline import Timeline
from anabranch.agents._tool_questions import Given, Reply, reply_of
from anabranch.agents._tool_set import FrontEnd, FrontEndTools, ToolSet, ToolSource
from anabranch.agents._turn import (
    Turn,
    check_unasked,
    find_question,
    line_of,
    observed,
    store_answer,
)
from anabranch.agents._turn_limits import Meter, TurnLimits, spent_in_turn
from anabranch.errors import ToolError
from anabranch.messages import Block, ElicitReply, TextBlock
from anabranch.rounds import AnswerLike, read_reply
from anabranch.tool import Tool
from anabranch.tree import (
    HEAD,
    Node,
    Path,
    Ref,
    Result,
    Surroundings,
    Thread,
    TreeStore,
    store_files,
    surroundings_after,
)


class Agent:
    """An agent: answers the messages of a thread with a model, which may call tools.

    Args:
        store: the store of threads.
        model: the model that replies.
        tools: the tools that the model may call: anabranch tools, or tools written for agents, such as
            :class:`~anabranch.agents.BranchSelf`, and sources of tools, such as
            :class:`~anabranch.agents.RemoteTools` and :class:`~anabranch.agents.Folding`.
        user: an answerer that answers the questions of tools immediately, with the node of the
            question as ``step_id``. Without ``user``, and with ``capabilities`` that offer
            questions, a turn ends at a question, and :meth:`answer` continues the turn. With
            neither, no tool can ask.
        limits: the limits of each turn.
        tool_limits: the limits of each call of a tool, in addition to the tool's own.
        listener: a function, async or plain, that receives each event of a turn.
        clock: the time; by default, the system's.
        naming: names threads and nodes; by default, random names.
        capabilities: the kinds of questions that tools may ask; by default, the kinds that
            ``user`` answers, and samples, which ``model`` answers.
        calls: the store of the tools' calls, so that each effect happens once, even after a crash.
            By default, the database of ``store``, or this process's memory if ``store`` is not of
            :mod:`anabranch.stores`.
        code_version: the version of the tools' code, under which ``calls`` are stored; by default,
            a digest of the files in which the tools are defined.

    Attributes:
        tools: the tools that the agent has now, by name.
        dependencies: the other arguments of the constructor.
    """

    def __init__(  # noqa: PLR0913 - the surroundings of an agent, by keyword
        self,
        store: TreeStore,
        model: Model,
        *,
        tools: Iterable[Tool[Any] | AgentTool | ToolSource] = (),
        user: Answerer | None = None,
        limits: TurnLimits | None = None,
        tool_limits: Limits | None = None,
        listener: Callable[[Event], object] = ignore_event,
        clock: Clock | None = None,
        naming: Naming = random_names,
        capabilities: Capabilities | None = None,
        calls: CallStore | Durability | None = None,
        code_version: str | None = None,
    ) -> None:
        require_parts("Agent()", store, model, capabilities, user)
        self.tools: ToolSet = ToolSet(tools)
        self.tools.warn_of_too_many(model)
        self.dependencies: AgentDependencies = AgentDependencies(
            store,
            model,
            self.tools.specs,
            user,
            limits or TurnLimits(),
            tool_limits or Limits(),
            awaited(listener),
            clock or SystemClock(),
            naming,
            capabilities or offered((user or Absent()).capabilities, model),
            durability_of(calls, store),
            self.tools.version(code_version),
        )

    @property
    def store(self) -> TreeStore:
        """The store of the threads."""
        return self.dependencies.store

    def of_run(self, run_id: str) -> Agent:
        """Return a copy of this agent for one run, which names nodes alike in every process.

        The name of a node follows from its position in the run. So two processes that continue the
        same run cannot both add a node at one position.
        """
        agent = copy(self)
        agent.dependencies = replace(self.dependencies, run=run_id)
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
        """Store ``nodes`` and tools' ``results``, and move the head to the last node."""
        refs = [Ref(HEAD, nodes[-1].id)] if head else []
        return await self.dependencies.add(nodes, results, refs)

    async def head(self, thread_id: str) -> str | None:
        """Return the id of the node at the thread's head, or ``None`` for an empty thread."""
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
            ToolError: if the thread does not exist, or the message is blank.
            TurnLimitError: if a limit of the turn is reached.
            Exception: if the model raises an error. The message and all nodes before the error
                stay.
        """
        require_id("say", "thread", thread_id)
        if at is not None:
            require_id("say", "node", at)
        around = await self.store.around(thread_id, at)
        thread = around.thread if around is not None else await self.store.thread(thread_id)
        if thread is None:
            raise ToolError(f"There is no thread {thread_id!r}.")
        [message] = await self.put(thread_id, [(at if around is None else around.last.id, content)])
        above = Path((), {}) if around is None else around
        return await self.resume(surroundings_after(above, thread, message))

    async def put(
        self,
        thread_id: str,
        messages: Sequence[tuple[str | None, str | Iterable[Block]]],
        *,
        head: bool = True,
    ) -> list[Node]:
        """Add user messages without running a turn: pairs of a parent node's id and a content.

        The store keeps images and documents apart from the tree; the messages refer to them.

        Raises:
            ToolError: if a message is blank; then no message is added.
        """
        require_id("put", "thread", thread_id)
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

    async def resume(self, node: Node | Surroundings) -> Node:
        """Run a turn that continues at ``node``, and return the turn's last node.

        If ``node`` calls tools, the turn first runs the tools without a result. If ``node`` is a
        question of a tool, or an answer, the tools on its path continue until they need further
        answers. If ``node`` is in a branch whose tool has not returned, the branch continues; after
        the last branch, the tool's caller continues. A cancelled turn stores the text received so
        far and leaves a valid thread. Pass the node's :class:`~anabranch.tree.Surroundings` if you
        have just read them.

        Raises:
            ToolError: if a tool without a result has asked a question. A second run would repeat
                the tool's effects before the question; :meth:`answer` resumes the tool.
            TurnLimitError: if a limit of the turn is reached.
            Exception: if the model raises an error.
        """
        around = await surroundings_of(self.store, node)
        return await observed(around.thread.id, self._resume(around))

    async def _resume(self, around: Surroundings) -> Node:
        node, turn = around.last, _turn_in(self, around.thread, around.last)
        if (fork := None if node.kind == "user" else open_fork(around)) is not None:
            return await self._resume_in(fork)
        if BatchLine.read(around) is None:
            return await turn.run(around)
        writer = await LineWriter.at(turn.timeline, around)
        if node.tool_uses:
            check_unasked(writer.line)
        return await turn.resume_tools(writer)

    async def use_tools(self, node: Node | Surroundings) -> Node:
        """Continue the tools at ``node`` as :meth:`resume` does, without asking the model."""
        around = await surroundings_of(self.store, node)
        turn = _turn_in(self, around.thread, around.last)
        writer = await LineWriter.at(turn.timeline, around)
        return await observed(around.thread.id, turn.use_tools(writer))

    async def _resume_in(self, fork: OpenFork) -> Node:
        around = await line_of(self.store, fork.caller)
        turn = _turn_in(self, around.thread, around.last)
        turn.continuation = replace(turn.continuation, within=fork.within)
        writer = await LineWriter.at(turn.timeline, around)
        return await turn.resume_at_answer(writer)

    async def answer(self, question_id: str, reply: AnswerLike) -> Node:
        """Answer a question of a tool, in any process, at any time; return the turn's last node.

        The tool continues when all its questions of this round are answered. The model continues
        when all tools have returned. Finished steps are replayed from the journal.

        A second, different answer starts another path of the conversation, and forks the call:
        effects after the question happen on each path, with different idempotency keys. A repeated
        answer continues the path that it started, if work is left there. In a branch, an answer is
        final until the tool that opened the branch has returned.

        Raises:
            InvalidAnswerError: if ``reply`` does not answer the question.
            QuestionAnsweredError: if a different answer to a final question is stored.
            QuestionExpiredError: if the question's time is over without an answer, or, in a branch,
                the question's tool continues without an answer.
            ToolError: if the question does not exist, or the agent lacks the question's tool.
            TurnLimitError: if a limit of the turn is reached.
            Exception: if the model raises an error.
        """
        require_id("answer", "question", question_id)
        given = read_reply(question_id, reply)
        question, around = await find_question(self.store, question_id)
        return await observed(question.thread_id, self._answer(question, around, given))

    async def _answer(self, question: Node, around: Surroundings, reply: ElicitReply) -> Node:
        turn, fork = _turn_at(self, around)
        writer = await store_answer(turn, around, question, reply, again=fork is None)
        if fork is not None:
            return await self._resume_in(fork)
        return await turn.resume_at_answer(writer)

    async def add_answer(self, question_id: str, reply: AnswerLike) -> Node:
        """Store the first answer to a question of a tool, without running the tool.

        Returns the last node of the question's path. A repeated answer changes nothing. A call
        whose questions are all answered does not expire, however late the call continues.

        Raises:
            QuestionAnsweredError: if the question has a different answer, maybe just stored by
                another process.
            QuestionExpiredError: if the question's time is over, and its tool continues without an
                answer.
            ToolError: as for :meth:`answer`.
        """
        require_id("add_answer", "question", question_id)
        return await add_reply(self, question_id, read_reply(question_id, reply))

    async def cancel_questions(self, node: Node | Surroundings) -> Node:
        """Cancel all open questions of the tools at ``node``, and return the last node.

        The tools receive ``cancel`` for these questions and any further question, until they
        return. The agent does not ask the model, and waiting branches end. ``node`` is a question,
        or any other node on its path or in a branch below the path.

        Raises:
            ToolError: if no tool waits at ``node``.
        """
        around = await surroundings_of(self.store, node)
        turn, fork = _turn_in(self, around.thread, around.last), open_fork(around)
        turn.continuation = Continuation(Absent(), is_left=True)
        if fork is not None:
            around = await line_of(self.store, fork.caller)
        return await turn.use_tools(await LineWriter.at(turn.timeline, around))

    async def open_questions(self, node: Node | Surroundings) -> list[Node]:
        """Return the open questions of the tools at ``node``, in the order of the questions.

        The questions in the tools' branches follow. The last node of a turn that ended at questions
        is such a ``node``.
        """
        around = await surroundings_of(self.store, node)
        return list((await PathEnd.read(self.store, around)).questions)

    async def cut_off(self, thread_id: str, asleep: Container[tuple[str, str]] = ()) -> Node | None:
        """Return the head of a thread whose tools were cut off, such as by a crash, else ``None``.

        A tool that was cut off has neither returned nor been interrupted, and no question of it is
        open; :meth:`resume` continues the tool. ``asleep`` lists calls of tools to leave out
        because they sleep, as pairs: the id of the node that calls the tool, and the id of the tool
        use.
        """
        end = await end_of(self, thread_id, asleep=asleep)
        return end.around.last if end is not None and end.can_continue else None

    async def interrupt_tools(self, thread_id: str) -> None:
        """Stop the sleeping and cut-off tools at a thread's head, and undo their effects.

        A tool that waits for an answer keeps waiting. But if a tool runs in branches and one branch
        is stopped, all its branches stop, and their questions stay unanswered. The agent does not
        ask the model.
        """
        end = await end_of(self, thread_id)
        if end is not None and end.can_continue:
            turn = await turn_of(self, end.around.last)
            turn.continuation = Continuation(is_stopped=True)
            await turn.use_tools(await LineWriter.at(turn.timeline, end.around))

    def suspend(self) -> None:
        """Leave interrupted turns to a later process; call this before the process ends.

        Without this call, an interruption ends running tools, undoes their effects, and stores the
        received part of the model's reply.
        """
        self.dependencies.suspension.begin()

    async def expire_calls(self) -> NoReturn:
        """Undo the effects of each tool whose question gets no answer in time; run until cancelled.

        Run this method in a task, in one process or several. Questions of expired calls cannot be
        answered any more.
        """
        tools = {
            name: called.tool
            for name, called in self.tools.items()
            if isinstance(called, CalledTool)
        }
        await reaper_of(self.dependencies, tools).run()


def with_front_end(agent: Agent, front_end: FrontEnd) -> Agent:
    present = copy(agent)
    present.tools = agent.tools.with_source(FrontEndTools(front_end.tools))
    present.dependencies = replace(
        agent.dependencies, tool_specs=present.tools.specs, system_prompt=front_end.system_prompt
    )
    return present


async def add_reply(
    agent: Agent,
    question_id: str,
    reply: Reply,
    *,
    again: bool = False,
    at: Surroundings | None = None,
) -> Node:
    """Store a reply to a question, whose line ends ``at`` if known; return the last node below."""
    question, around = await find_question(agent.store, question_id, at)
    turn, fork = _turn_at(agent, around)
    writer = await store_answer(turn, around, question, reply, again=again and fork is None)
    return writer.after or writer.line.last


async def given_answer(
    agent: Agent, question: Node, at: Surroundings | None = None
) -> Given | None:
    """Return the answer to a question; ``None`` while the question is open."""
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
    """Return the end of the path through a node, by default the head; ``None`` if there is none."""
    around, now = await agent.store.around(thread_id, node_id), agent.dependencies.clock.now()
    if around is None:
        return None
    return await PathEnd.read(agent.store, around, asleep, now)


async def turn_of(agent: Agent, node: Node) -> Turn:
    thread = await agent.store.thread(node.thread_id)
    if thread is None:
        raise ToolError(f"There is no thread {node.thread_id!r}.")
    return _turn_in(agent, thread, node)


def _turn_at(agent: Agent, around: Surroundings) -> tuple[Turn, OpenFork | None]:
    """Return a turn that stores an answer; in a branch, the turn does not move the thread's head."""
    turn, fork = _turn_in(agent, around.thread, around.last), open_fork(around)
    turn.timeline.moves_head = fork is None
    return turn, fork


def _turn_in(agent: Agent, thread: Thread, node: Node) -> Turn:
    dependencies = agent.dependencies
    earlier = partial(spent_in_turn, agent.store, node)
    meter = Meter(dependencies.limits, None if node.kind == "user" else earlier)
    continuation = Continuation(dependencies.user)
    return Turn(Timeline(dependencies, thread, meter), agent.tools, continuation)


def _blocks(content: str | Iterable[Block]) -> tuple[Block, ...]:
    return (TextBlock(text=content),) if isinstance(content, str) else tuple(content)


def _says_something(content: Iterable[Block]) -> bool:
    return any(not isinstance(block, TextBlock) or block.text.strip() for block in content)

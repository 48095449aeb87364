"""An agent: a model with tools that replies in threads of the conversation tree.

An agent has no state of its own between turns; all of it is in the store.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NoReturn

from anabranch._asking.answerer import Absent, Answerer
from anabranch._asking.host import Capabilities
from anabranch._durable.policy import Durability
from anabranch._durable.store import CallStore
from anabranch._engine.clock import Clock, SystemClock
from anabranch.agents._agent_dependencies import AgentDependencies, durability_of, offered
from anabranch.agents._agent_tools import AgentTool
from anabranch.agents._call_expiry import reaper_of
from anabranch.agents._called_tool import CalledTool
from anabranch.agents._events import Listener, NodeAdded, ignore_event
from anabranch.agents._ports import Model, Naming, random_names
from anabranch.agents._timeline import Timeline
from anabranch.agents._tool_questions import reply_of
from anabranch.agents._tool_set import ToolSet, ToolSource
from anabranch.agents._turn import Turn
from anabranch.agents._turn_limits import TurnLimits
from anabranch.errors import ToolError
from anabranch.limits import Limits
from anabranch.messages import ElicitReply
from anabranch.tool import Tool
from anabranch.tree import HEAD, Node, Ref, Result, Thread, TreeStore

__all__ = ["Agent"]


class Agent:
    """Replies in threads.

    Args:
        store: stores the threads.
        model: replies.
        tools: what the model may call: anabranch tools, or tools written for agents, such as
            :class:`~anabranch.agents.BranchSelf`, and sources of tools, such as
            :class:`~anabranch.agents.RemoteTools`.
        person: answers the questions of tools, with the node of the question as ``step_id``; by
            default, no question can be asked.
        limits: of each turn.
        tool_limits: of each call of a tool, in addition to the tool's own.
        listener: receives the events of a turn.
        clock: gives the time; by default, the system's.
        naming: names threads and nodes; by default, at random.
        capabilities: what its tools may ask for; by default, questions as ``person`` declares
            them, and samples, which ``model`` answers.
        calls: stores the calls of tools, so that their effects happen once whatever dies; by
            default, only what a question needs is stored, in the tree.

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
    ) -> None:
        self.tools: ToolSet = ToolSet(tools)
        self.dependencies: AgentDependencies = AgentDependencies(
            store,
            model,
            self.tools.specs,
            person := person or Absent(),
            limits or TurnLimits(),
            tool_limits or Limits(),
            listener,
            clock or SystemClock(),
            naming,
            capabilities or offered(person, model),
            durability_of(calls),
        )

    @property
    def store(self) -> TreeStore:
        """Where the threads are stored."""
        return self.dependencies.store

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
        await self.store.append(nodes, results=results, refs=refs)
        for node in nodes:
            await self.dependencies.listener(NodeAdded(node))
        return list(nodes)

    async def head(self, thread_id: str) -> str | None:
        """Return the id of the node at the thread's head, ``None`` if it has no head."""
        return (await self.store.refs(thread_id)).get(HEAD)

    # -- turns -------------------------------------------------------------------------------

    async def say(self, thread_id: str, text: str, *, at: str | None = None) -> Node:
        """Add a user message and run a turn; return the turn's last node.

        Args:
            thread_id: the thread.
            text: the message.
            at: the node that the message follows; by default, the thread's head.

        Raises:
            ToolError: the thread does not exist, or the text is blank.
            TurnLimitError: a limit of the turn is reached.
            Exception: what the model raises. The message, and all nodes before the error, stay.
        """
        if await self.store.thread(thread_id) is None:
            raise ToolError(f"There is no thread {thread_id!r}.")
        parent = at if at is not None else await self.head(thread_id)
        [message] = await self.put(thread_id, [(parent, text)])
        return await self.go_on(message)

    async def put(
        self, thread_id: str, messages: Sequence[tuple[str | None, str]], *, head: bool = True
    ) -> list[Node]:
        """Add user messages, each after the node with the given id, without running a turn.

        Raises:
            ToolError: a text is blank; then no message is added.
        """
        if not all(text.strip() for _, text in messages):
            raise ToolError("A message must not be blank.")
        node = self.dependencies.node
        nodes = [node(thread_id, parent, "user", text) for parent, text in messages]
        return await self.add(nodes, head=head)

    async def go_on(self, node: Node) -> Node:
        """Run a turn from ``node`` on, and return its last node.

        If ``node`` calls tools, those that have no result yet are run first; if it answers the
        question of a tool that has none, the tool is resumed there. If the turn is cancelled, what was received until then is stored, and the thread is valid.

        Raises:
            ToolError: one of these tools has asked a question. Running it again would repeat what
                it did before the question; :meth:`answer` resumes it.
            TurnLimitError: a limit of the turn is reached.
            Exception: what the model raises.
        """
        turn = await self.turn(node)
        if node.tool_uses:
            results = (await self.store.path(node.id)).results
            returned = [use.id for use in node.tool_uses if (node.id, use.id) in results]
            await self._check_unasked(node, returned)
            node = await turn.use_tools(node, returned=returned)
        elif node.kind == "answer" and (question := await self._unfinished(node)) is not None:
            return await turn.answer(question, reply_of(node), answered=node)
        return await turn.run(node)

    async def answer(self, question_id: str, reply: ElicitReply) -> Node:
        """Answer a question of a tool, whether or not it has been answered before.

        On a new branch below the question, the tool's call is replayed up to the question and
        continues with this answer; then the model continues. Returns the turn's last node.

        Raises:
            ToolError: the question does not exist, or the agent does not have its tool.
            TurnLimitError: a limit of the turn is reached.
            Exception: what the model raises.
        """
        node = await self.store.node(question_id)
        if node is None or node.kind != "question":
            raise ToolError(f"There is no question {question_id!r}.")
        return await (await self.turn(node)).answer(node, reply)

    async def turn(self, node: Node) -> Turn:
        """Return a turn in the thread of ``node``; nothing has happened in it yet.

        Raises:
            ToolError: the thread does not exist.
        """
        thread = await self.store.thread(node.thread_id)
        if thread is None:
            raise ToolError(f"There is no thread {node.thread_id!r}.")
        return Turn(Timeline(self.dependencies, thread), self.tools)

    async def expire_calls(self) -> NoReturn:
        """Undo what tools have done whose questions are not answered in time, until cancelled.

        Run it in a task, in one process or several. What has expired cannot be answered any more.

        Raises:
            ValueError: the agent has no store of calls.
        """
        tools = {
            name: called.tool
            for name, called in self.tools.items()
            if isinstance(called, CalledTool)
        }
        await reaper_of(self.dependencies, tools).run()

    async def _unfinished(self, answer: Node) -> Node | None:
        """Return the question of ``answer`` if the tool that asked it has no result."""
        path = await self.store.path(answer.id)
        question = path.nodes[-2]
        caller, use_id = question.data.get("caller"), str(question.data.get("tool_use_id"))
        if caller is None:  # loaded from a file
            return None
        ended = any((each, use_id) in path.results for each in (str(caller), answer.id))
        return None if ended else question

    async def _check_unasked(self, caller: Node, returned: Collection[str]) -> None:
        """Refuse to run a tool again that has asked a question."""
        names = {use.id: use.name for use in caller.tool_uses if use.id not in returned}
        asked: list[Node] = []
        below = [caller] if names else []
        for node in below:  # the list grows meanwhile; the last question found is the deepest
            asked += [node] if str(node.data.get("tool_use_id")) in names else []
            followers = await self.store.children(node.id)
            below += [each for each in followers if each.kind in {"question", "answer"}]
        if asked:
            question = asked[-1]
            raise ToolError(
                f"The tool {names[str(question.data['tool_use_id'])]!r} has asked {question.text!r}"
                f" and continues from there: answer that question ({question.id}), below this node."
            )

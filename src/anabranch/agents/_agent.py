"""An agent: a model with tools, living on a conversation tree.

Owns what all its turns share, and the ways to set one going: say something, go on from a node,
answer a question. What happens in a turn is ``turn.py``'s; the agent keeps nothing between turns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from anabranch._asking.answerer import Absent, Answerer
from anabranch._engine.clock import Clock, SystemClock
from anabranch.agents._agent_tools import AgentTool, CalledTool
from anabranch.agents._events import Listener, NodeAdded, nobody
from anabranch.agents._ports import Model, Naming, random_names
from anabranch.agents._turn import Turn
from anabranch.agents._turn_limits import TurnLimits
from anabranch.errors import ToolError
from anabranch.messages import Block, ElicitReply, TextBlock
from anabranch.tool import Tool
from anabranch.tree import Node, Ref, Result, Thread, TreeStore
from anabranch.tree._nodes import HEAD, Kind

__all__ = ["Agent"]


class Agent:
    """Answers in threads.

    Args:
        store: where threads are kept.
        model: who answers.
        tools: what the model may call: anabranch tools, or an agent's own (``branch_self``).
        person: answers the questions of tools, each by its node's id; by default every question is declined.
        limits: of each turn.
        listener: told of what happens.
        clock: time.
        naming: names for threads and nodes.
    """

    def __init__(
        self,
        store: TreeStore,
        model: Model,
        *,
        tools: Iterable[Tool[Any] | AgentTool] = (),
        person: Answerer | None = None,
        limits: TurnLimits | None = None,
        listener: Listener = nobody,
        clock: Clock | None = None,
        naming: Naming = random_names,
    ) -> None:
        self.store = store
        self.model = model
        self.person: Answerer = person or Absent()
        self.limits: TurnLimits = limits or TurnLimits()
        self.listener = listener
        self.clock: Clock = clock or SystemClock()
        self.naming = naming
        self.tools: Mapping[str, AgentTool] = {
            tool.name: CalledTool(tool) if isinstance(tool, Tool) else tool for tool in tools
        }

    # -- the tree ----------------------------------------------------------------------------

    async def begin(self, *, system_prompt: str | None = None, title: str = "") -> Thread:
        """Return a new thread, without nodes."""
        thread = Thread(self.naming("thread"), self.clock.now(), system_prompt, title)
        await self.store.create_thread(thread)
        return thread

    def node(
        self,
        thread_id: str,
        parent_id: str | None,
        kind: Kind,
        content: Iterable[Block] | str = (),
        **more: Any,  # noqa: ANN401 - the fields of a node
    ) -> Node:
        """Return a node of now, not yet in the store."""
        blocks = (TextBlock(text=content),) if isinstance(content, str) else tuple(content)
        name, now = self.naming("node"), self.clock.now()
        return Node(name, thread_id, parent_id, kind, blocks, now, **more)

    async def add(
        self, nodes: Sequence[Node], results: Sequence[Result] = (), *, head: bool = True
    ) -> list[Node]:
        """Put ``nodes`` into the store, with results, and the head on the last; return them."""
        refs = [Ref(HEAD, nodes[-1].id)] if head else []
        await self.store.append(nodes, results=results, refs=refs)
        for node in nodes:
            await self.listener(NodeAdded(node))
        return list(nodes)

    async def head(self, thread_id: str) -> str | None:
        """Return the node on which the thread's head is, ``None`` before the first."""
        return (await self.store.refs(thread_id)).get(HEAD)

    # -- turns -------------------------------------------------------------------------------

    async def say(self, thread_id: str, text: str, *, at: str | None = None) -> Node:
        """Say ``text`` at the thread's head, or at any node; return where the turn has ended.

        Raises:
            ToolError: there is no such thread, or the text is blank.
            Exception: what the model raises. What was said, and all before the error, is kept.
        """
        if await self.store.thread(thread_id) is None:
            raise ToolError(f"There is no thread {thread_id!r}.")
        parent = at if at is not None else await self.head(thread_id)
        [said] = await self.put(thread_id, [(parent, text)])
        return await self.go_on(said)

    async def put(
        self, thread_id: str, places: Sequence[tuple[str | None, str]], *, head: bool = True
    ) -> list[Node]:
        """Add what a person says, each text after the node of this id, and set no turn going.

        Raises:
            ToolError: a text is blank; then none is added.
        """
        if not all(text.strip() for _, text in places):
            raise ToolError("There is nothing to say in a blank message.")
        nodes = [self.node(thread_id, parent, "user", text) for parent, text in places]
        return await self.add(nodes, head=head)

    async def go_on(self, node: Node) -> Node:
        """Let the model answer at ``node``, and use its tools until it is done.

        Where ``node`` calls tools itself, those that have not returned are run first. Returns the
        last node. Cancelled, it keeps what was received, and the thread is valid.

        Raises:
            ToolError: one of these tools has asked something. Run again it would do again what it
                did before; :meth:`answer` goes on with it.
        """
        turn = await Turn.at(self, node)
        if node.tool_uses:
            held = (await self.store.path(node.id)).results
            returned = [use.id for use in node.tool_uses if (node.id, use.id) in held]
            await self._check_unasked(node, returned)
            node = await turn.use_tools(node, returned=returned)
        return await turn.run(node)

    async def _check_unasked(self, caller: Node, returned: Collection[str]) -> None:
        """Refuse to run tools again that are to be gone on with at a question."""
        names = {use.id: use.name for use in caller.tool_uses if use.id not in returned}
        asked: list[Node] = []
        below = [caller] if names else []
        for node in below:  # which grows meanwhile: the last question is the deepest
            asked += [node] if str(node.data.get("tool_use_id")) in names else []
            followers = await self.store.children(node.id)
            below += [one for one in followers if one.kind in {"question", "answer"}]
        if asked:
            question = asked[-1]
            raise ToolError(
                f"The tool {names[str(question.data['tool_use_id'])]!r} has asked {question.text!r}"
                f" and goes on from there: answer that question ({question.id}), below this node."
            )

    async def answer(self, question_id: str, reply: ElicitReply) -> Node:
        """Answer a question of a tool, whether or not it was answered before.

        The tool's call is replayed up to this question and goes on with this answer, on a branch
        of its own; then the model does.

        Raises:
            ToolError: there is no such question, or its tool is not here.
        """
        node = await self.store.node(question_id)
        if node is None or node.kind != "question":
            raise ToolError(f"There is no question {question_id!r}.")
        return await (await Turn.at(self, node)).answer(node, reply)

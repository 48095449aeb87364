"""One turn: the model answers, its tools run, it answers again, until it calls no more tools.

Owns the order of things and what is kept when: every node is in the store before the next thing
is done, so that whatever interrupts a turn, the thread is valid and says what happened.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast

import anyio
from pydantic import JsonValue
from pydantic_core import to_json

from anabranch.agents.events import Event, NodeAdded, TextReceived, ToolEnded, ToolStarted
from anabranch.agents.limits import Meter, TurnLimitError
from anabranch.agents.ports import Question
from anabranch.agents.tools import CalledTool, Outcome
from anabranch.call import to_the_end
from anabranch.errors import ToolError
from anabranch.messages import (
    Block,
    ElicitReply,
    SampleReply,
    SampleRequest,
    TextBlock,
    ToolUseBlock,
)
from anabranch.tree import Node, Ref, Result, Thread, project
from anabranch.tree.nodes import HEAD
from anabranch.tree.projection import NO_RESULT

if TYPE_CHECKING:
    from anabranch.agents.agent import Agent

__all__ = ["Phase", "ToolUse", "Turn"]

logger: logging.Logger = logging.getLogger("anabranch.agents")


class Turn:
    """A turn of ``agent`` in ``thread``.

    Attributes:
        depth: how many branches enclose it.
        meter: what it has used; shared with the branches that it opens.
    """

    def __init__(
        self,
        agent: Agent,
        thread: Thread,
        *,
        depth: int = 0,
        meter: Meter | None = None,
        limiter: anyio.CapacityLimiter | None = None,
        moves_head: bool = True,
    ) -> None:
        self.agent = agent
        self.thread = thread
        self.depth = depth
        self.meter: Meter = meter or Meter(agent.limits)
        self._limiter: anyio.CapacityLimiter = limiter or anyio.CapacityLimiter(
            agent.limits.at_once
        )
        self._moves_head = moves_head

    @classmethod
    async def at(cls, agent: Agent, node: Node) -> Turn:
        """Return a turn for going on at ``node``.

        Raises:
            ToolError: its thread is not there.
        """
        thread = await agent.store.thread(node.thread_id)
        if thread is None:
            raise ToolError(f"There is no thread {node.thread_id!r}.")
        path = await agent.store.path(node.id)
        return cls(agent, thread, depth=sum(known.kind == "branch" for known in path.nodes))

    def branched(self) -> Turn:
        """Return a turn one branch deeper, which leaves the thread's head alone."""
        return Turn(
            self.agent,
            self.thread,
            depth=self.depth + 1,
            meter=self.meter,
            limiter=self._limiter,
            moves_head=False,
        )

    # -- the loop ----------------------------------------------------------------------------

    async def run(self, node: Node) -> Node:
        """Go on at ``node`` until the model calls no more tools; return the last node.

        Raises:
            TurnLimitError: a limit is reached; the thread can be gone on with.
            Exception: what the model raises.
        """
        for _ in range(self.agent.limits.iterations):
            node = await self.reply(node)
            if not node.tool_uses:
                return node
            node = await self.use_tools(node)
        limit = self.agent.limits.iterations
        raise TurnLimitError("requests to the model", limit, limit)

    async def reply(self, node: Node) -> Node:
        """Let the model answer at ``node`` once; return its answer's node.

        Raises:
            TurnLimitError: nothing is left.
            Exception: what the model raises; what it had said before is kept.
        """
        self.meter.check()
        request = await self._request(node)
        said: list[str] = []
        try:
            async with self._limiter:
                reply = await self._stream(node, request, said)
        except BaseException as error:
            if said:
                reason = "interrupted" if isinstance(error, asyncio.CancelledError) else "error"
                await to_the_end(self._keep(node, "".join(said), reason))
            raise
        cost = self.meter.add(reply.model, reply.usage)
        data: dict[str, JsonValue] = {"model": reply.model, "stop_reason": reply.stop_reason}
        if cost is not None:
            data["cost"] = cost
        answer = self.agent.node(
            self.thread.id,
            node.id,
            "assistant",
            _with_ids_apart(reply.content),
            usage=reply.usage,
            data=data,
        )
        return await self.add(answer)

    async def _request(self, node: Node) -> SampleRequest:
        path = await self.agent.store.path(node.id)
        tools = tuple(tool.spec for tool in self.agent.tools.values())
        return SampleRequest(
            messages=project(path.nodes, path.results),
            max_tokens=self.agent.limits.max_tokens,
            system_prompt=self.thread.system_prompt,
            tools=tools or None,
        )

    async def _stream(self, node: Node, request: SampleRequest, said: list[str]) -> SampleReply:
        reply: SampleReply | None = None
        async for part in self.agent.model.stream(request):
            if isinstance(part, str):
                said.append(part)
                await self.agent.listener(TextReceived(node.id, part))
            else:
                reply = part
        if reply is None:
            raise ToolError("The model's answer ended before it was complete.")
        return reply

    async def _keep(self, node: Node, text: str, reason: str) -> None:
        data: dict[str, JsonValue] = {"stop_reason": reason}
        await self.add(self.agent.node(self.thread.id, node.id, "assistant", text, data=data))

    async def add(self, node: Node, results: Sequence[Result] = ()) -> Node:
        """Put ``node`` into the store, with results; return it."""
        refs = [Ref(HEAD, node.id)] if self._moves_head else []
        await self.agent.store.append([node], results=results, refs=refs)
        await self.agent.listener(NodeAdded(node))
        return node

    # -- tools -------------------------------------------------------------------------------

    async def use_tools(self, caller: Node) -> Node:
        """Run the tools that ``caller`` calls, all at once; return the node of their results."""
        phase = Phase(self, caller, tip=caller)
        await phase.hold_places()
        try:
            async with anyio.create_task_group() as group:
                for use in caller.tool_uses:
                    group.start_soon(phase.use, use)
        except BaseException:
            await to_the_end(phase.break_off())
            raise
        return await phase.end()

    async def answer(self, question: Node, reply: ElicitReply) -> Node:
        """Answer ``question`` on a branch of its own, and go on from there.

        Raises:
            ToolError: the tool that has asked is not here any more.
        """
        caller = await self.agent.store.node(str(question.data["caller"]))
        uses = {use.id: use for use in caller.tool_uses} if caller is not None else {}
        use = uses.get(str(question.data["tool_use_id"]))
        tool = self.agent.tools.get(use.name) if use is not None else None
        if caller is None or use is None or not isinstance(tool, CalledTool):
            raise ToolError(f"The tool that asked {question.id!r} is not here any more.")
        phase = Phase(self, caller, tip=question, anew=True)
        await phase.add_answer(reply)
        resumed = tool.resume(ToolUse(phase, use), question, reply)
        await phase.keep(use, await phase.guarded(use, resumed))
        return await self.run(await phase.end())


@dataclass(slots=True)
class Phase:
    """The tools of one answer, while they run.

    Attributes:
        turn: the turn that they belong to.
        caller: the node that has called them.
        tip: where the next question hangs: the caller, or the last answer.
        anew: a call is run again from a question that was answered before. Its result then holds
            from there on, and leaves alone what the caller's other followers see.
    """

    turn: Turn
    caller: Node
    tip: Node
    anew: bool = False
    outcomes: dict[str, Outcome] = field(default_factory=dict[str, Outcome])
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def hold_places(self) -> None:
        """Have something stand for every result, if anybody may look before they are there."""
        tools = self.turn.agent.tools
        used = [tools[use.name] for use in self.caller.tool_uses if use.name in tools]
        for tool in used:
            if tool.placeholder is not None:
                held = Outcome(tool.placeholder)
                await self._write(use_id=None, outcome=held)
                return

    async def use(self, use: ToolUseBlock) -> None:
        """Run one tool to its outcome, and keep that."""
        await self.turn.agent.listener(ToolStarted(self.caller.id, use))
        tool = self.turn.agent.tools.get(use.name)
        if tool is None:
            known = ", ".join(sorted(self.turn.agent.tools)) or "none"
            outcome = Outcome(f"There is no tool {use.name!r}. Tools: {known}.", is_error=True)
        else:
            outcome = await self.guarded(use, tool.use(ToolUse(self, use)))
        await self.keep(use, outcome)

    async def guarded(self, use: ToolUseBlock, work: Awaitable[Outcome]) -> Outcome:
        """Return the outcome of ``work``; what it raises is told in its own words, or masked."""
        try:
            return await work
        except ToolError as error:
            return Outcome(str(error), is_error=True)
        except Exception:
            logger.exception("tool %r raised an unexpected exception", use.name)
            return Outcome(f"Error executing tool {use.name}", is_error=True)

    async def keep(self, use: ToolUseBlock, outcome: Outcome) -> None:
        """Keep an outcome; all that follows on the caller sees it from now on."""
        self.outcomes[use.id] = outcome
        if not self.anew:
            await self._write(use.id, outcome)
        await self.turn.agent.listener(ToolEnded(use, _result(self.caller.id, use.id, outcome)))

    async def break_off(self) -> None:
        """Say of every tool that has not returned that it was interrupted."""
        for use in self.caller.tool_uses:
            if use.id not in self.outcomes:
                await self._write(use.id, Outcome(NO_RESULT, is_error=True))

    async def end(self) -> Node:
        """Add the node on which the model sees the results, and return it."""
        holder = self.tip.id if self.anew else self.caller.id
        results = [
            _result(
                holder, use_id, replace(outcome, text=outcome.pending or outcome.text, pending=None)
            )
            for use_id, outcome in self.outcomes.items()
        ]
        node = self.turn.agent.node(self.turn.thread.id, self.tip.id, "results")
        return await self.turn.add(node, results)

    async def ask(
        self, use: ToolUseBlock, question: Question, data: dict[str, JsonValue]
    ) -> ElicitReply:
        """Ask the person, one question after the other, and keep both as nodes."""
        turn, agent = self.turn, self.turn.agent
        about: dict[str, JsonValue] = {"caller": self.caller.id, "tool_use_id": use.id, **data}
        async with self.asking:
            node = agent.node(turn.thread.id, self.tip.id, "question", question.message, data=about)
            self.tip = await turn.add(node)
            reply = await agent.person.answer(node, question)
            await self.add_answer(reply)
        return reply

    async def add_answer(self, reply: ElicitReply) -> None:
        """Add the answer to the question that is the tip."""
        turn = self.turn
        said = reply.action if reply.content is None else to_json(reply.content).decode()
        data = cast("dict[str, JsonValue]", reply.model_dump(mode="json", exclude_none=True))
        node = turn.agent.node(turn.thread.id, self.tip.id, "answer", said, data=data)
        self.tip = await turn.add(node)

    async def _write(self, use_id: str | None, outcome: Outcome) -> None:
        ids = [use.id for use in self.caller.tool_uses] if use_id is None else [use_id]
        results = [_result(self.caller.id, each, outcome) for each in ids]
        await self.turn.agent.store.set_results(results)


@dataclass(frozen=True, slots=True)
class ToolUse:
    """What a tool knows of its being used: the turn, the caller, and the block with its input."""

    phase: Phase
    use: ToolUseBlock

    @property
    def turn(self) -> Turn:
        """The turn that it belongs to."""
        return self.phase.turn

    @property
    def caller(self) -> Node:
        """The node that has called it."""
        return self.phase.caller

    async def ask(self, question: Question, data: dict[str, JsonValue]) -> ElicitReply:
        """Ask the person; ``data`` is kept with the question."""
        return await self.phase.ask(self.use, question, data)

    async def tell(self, event: Event) -> None:
        """Tell whoever listens to the agent."""
        await self.turn.agent.listener(event)


def _result(holder: str, use_id: str, outcome: Outcome) -> Result:
    pending = None if outcome.pending is None else (TextBlock(text=outcome.pending),)
    return Result(holder, use_id, (TextBlock(text=outcome.text),), outcome.is_error, pending)


def _with_ids_apart(content: Iterable[Block]) -> tuple[Block, ...]:
    """Return ``content`` with an id of its own for each tool use; some models repeat them."""
    seen: set[str] = set()
    blocks: list[Block] = []
    for block in content:
        if isinstance(block, ToolUseBlock):
            name, number = block.id, 1
            while name in seen:
                number += 1
                name = f"{block.id}_{number}"
            seen.add(name)
            if name != block.id:
                blocks.append(block.model_copy(update={"id": name}))
                continue
        blocks.append(block)
    return tuple(blocks)

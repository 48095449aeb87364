"""The tools of one answer, while they run: outcomes, questions, and what is seen meanwhile.

Owns when a result is kept, and for whom. Mostly nobody looks before all are there; but where one
of the tools lets branches see the unfinished turn, a placeholder stands for every result, and what
the tools return is held back until the next message follows: branches that share a beginning go on
sharing it, and whatever interrupts the turn, the results that are there come to light.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, cast

from pydantic import JsonValue
from pydantic_core import to_json

from anabranch.agents._agent_tools import Outcome
from anabranch.agents._events import Event, ToolEnded, ToolStarted
from anabranch.agents._gather_structured import together
from anabranch.agents._ports import Model, Question
from anabranch.agents._turn_limits import Spent
from anabranch.errors import AnabranchError, StoreError
from anabranch.messages import ElicitReply, TextBlock, ToolUseBlock
from anabranch.tree import Node, Result
from anabranch.tree._projection import NO_RESULT

if TYPE_CHECKING:
    from anabranch.agents._turn import Turn

__all__ = ["Phase", "ToolUse"]

logger: logging.Logger = logging.getLogger("anabranch.agents")


@dataclass(slots=True)
class Phase:
    """The tools of one answer.

    Attributes:
        turn: the turn that they belong to.
        caller: the node that has called them.
        tip: where the next question hangs: the caller, or the last answer.
        anew: a call is run again from a question that was answered before. Its result then holds
            from there on, and leaves alone what the caller's other followers see.
        returned: the tool uses whose results were there before; their tools are not run again.
        placeholder: what stands for every result while the tools run, if anything does.
        spent: what the tools have used of models in ways that no node tells of.
        asking: held by whoever asks, until the answer is taken.
    """

    turn: Turn
    caller: Node
    tip: Node
    anew: bool = False
    returned: frozenset[str] = frozenset()
    placeholder: str | None = None
    outcomes: dict[str, Outcome] = field(default_factory=dict[str, Outcome])
    spent: Spent = field(default_factory=Spent)
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def run(self) -> None:
        """Run all tools at once; their outcomes are kept as they come."""
        await self._hold_places()
        await together([partial(self._use, use) for use in self.uses])

    @property
    def uses(self) -> list[ToolUseBlock]:
        """The tools that are to be run."""
        return [use for use in self.caller.tool_uses if use.id not in self.returned]

    async def _hold_places(self) -> None:
        """Have something stand for every result, if anybody may look before they are there.

        What is held back, until a tool returns, is that it was interrupted: if that is what
        happens, nobody has to say so afterwards.
        """
        tools = self.turn.agent.tools
        used = (tools[use.name] for use in self.uses if use.name in tools)
        self.placeholder = next((tool.placeholder for tool in used if tool.placeholder), None)
        if self.placeholder is not None:
            interrupted = Outcome(NO_RESULT, is_error=True)
            results = [self._result(use.id, interrupted) for use in self.uses]
            await self.turn.agent.store.set_results(results)

    async def _use(self, use: ToolUseBlock) -> None:
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
        except Exception as error:
            if isinstance(error, AnabranchError) and not isinstance(error, StoreError):
                return Outcome(str(error), is_error=True)
            # Tools are their authors' code, and each use needs a result, or the thread is none
            # that a provider takes; what they raise may hold what is nobody's business.
            logger.exception("tool %r raised an unexpected exception", use.name)
            return Outcome(f"Error executing tool {use.name}", is_error=True)

    async def keep(self, use: ToolUseBlock, outcome: Outcome) -> None:
        """Keep an outcome; all that follows on the caller will see it."""
        self.outcomes[use.id] = outcome
        result = self._result(use.id, outcome)
        if not self.anew:
            await self.turn.agent.store.set_results([result])
        await self.turn.agent.listener(ToolEnded(use, result))

    async def end(self) -> Node:
        """Add the node on which the model sees the results, and return it."""
        self.placeholder = None
        results = [self._result(use_id, outcome) for use_id, outcome in self.outcomes.items()]
        spent = self.spent
        node = self.turn.agent.node(
            self.turn.thread.id,
            self.tip.id,
            "results",
            usage=spent.usage,
            data={} if spent.cost is None else {"cost": spent.cost},
        )
        return await self.turn.add(node, results)

    async def ask(
        self,
        use: ToolUseBlock,
        question: Question,
        data: Mapping[str, JsonValue],
        state: Callable[[], str],
    ) -> ElicitReply:
        """Ask the person, and keep both as nodes; each with the tool's state of its time."""
        turn, agent = self.turn, self.turn.agent
        about: dict[str, JsonValue] = {"caller": self.caller.id, "tool_use_id": use.id, **data}
        about["state"] = state()
        node = agent.node(turn.thread.id, self.tip.id, "question", question.message, data=about)
        self.tip = await turn.add(node)
        reply = await agent.person.elicit(question, step_id=node.id)
        await self.add_answer(reply, state())
        return reply

    async def add_answer(self, reply: ElicitReply, state: str | None = None) -> None:
        """Add the answer to the question that is the tip; ``state`` is what the tool was in."""
        turn = self.turn
        said = reply.action if reply.content is None else to_json(reply.content).decode()
        data = cast("dict[str, JsonValue]", reply.model_dump(mode="json", exclude_none=True))
        if state is not None:
            data["state"] = state
        node = turn.agent.node(turn.thread.id, self.tip.id, "answer", said, data=data)
        self.tip = await turn.add(node)

    def _result(self, use_id: str, outcome: Outcome) -> Result:
        holder = self.tip.id if self.anew else self.caller.id
        text = (TextBlock(text=outcome.text),)
        if self.placeholder is None:
            return Result(holder, use_id, text, outcome.is_error)
        shown = (TextBlock(text=self.placeholder),)
        return Result(holder, use_id, shown, outcome.is_error, pending=text)


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

    @property
    def asking(self) -> asyncio.Lock:
        """To be held while asking: there is one question after the other."""
        return self.phase.asking

    async def ask(
        self, question: Question, data: Mapping[str, JsonValue], state: Callable[[], str]
    ) -> ElicitReply:
        """Ask the person.

        Args:
            question: what is asked.
            data: is kept with it.
            state: tells how the tool stands: asked for, and kept, with the question and again
                with its answer.
        """
        return await self.phase.ask(self.use, question, data, state)

    async def aside(self, prompt: str, model: Model | None = None) -> str:
        """Return what the model, or another, says to ``prompt`` alone.

        The node of the results will tell what that has used.
        """
        return await self.turn.aside(prompt, model, self.phase.spent)

    async def keep(self, outcome: Outcome) -> None:
        """Keep what is there already, in case that the tool never comes to return it."""
        await self.phase.keep(self.use, outcome)

    async def tell(self, event: Event) -> None:
        """Tell whoever listens to the agent."""
        await self.turn.agent.listener(event)

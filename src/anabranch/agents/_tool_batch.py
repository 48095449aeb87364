"""A tool batch: the tools that one reply of the model calls, run at the same time.

Mostly, a result is stored as soon as its tool returns. If one of the tools opens branches that see
the unfinished turn, a placeholder is stored for every result first, and what the tools return
becomes visible with the next message only: so the branches' requests go on sharing their beginning,
and a result is never lost, wherever the turn is interrupted.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Collection, Mapping
from functools import partial

from anabranch.agents._agent_tools import AgentTool, Outcome, ToolUse
from anabranch.agents._called_tool import CalledTool
from anabranch.agents._events import ToolEnded, ToolStarted
from anabranch.agents._gather_structured import gather_structured
from anabranch.agents._timeline import Timeline
from anabranch.agents._tool_questions import ToolQuestions
from anabranch.agents._turn_limits import SideUsage
from anabranch.errors import AnabranchError, StoreError
from anabranch.messages import CUT, ElicitReply, TextBlock, ToolUseBlock
from anabranch.tree import NO_RESULT, Node, Result

__all__ = ["ToolBatch"]

logger: logging.Logger = logging.getLogger("anabranch.agents")


class ToolBatch:
    """The tools that the node ``caller`` calls.

    Args:
        timeline: the path that the results extend.
        tools: the agent's tools, by name.
        caller: the node that calls tools.
        returned: ids of tool uses whose results are stored already; their tools do not run again.
        resumed_at: the question, or its answer, at which one tool is resumed. Its result then holds
            below that answer only, and leaves what the caller's other descendants see unchanged.
    """

    def __init__(
        self,
        timeline: Timeline,
        tools: Mapping[str, AgentTool],
        caller: Node,
        *,
        returned: Collection[str] = (),
        resumed_at: Node | None = None,
    ) -> None:
        self._timeline = timeline
        self._tools = tools
        self._caller = caller
        self._uses = [use for use in caller.tool_uses if use.id not in returned]
        self._resumed = resumed_at is not None
        self._placeholder: str | None = None
        self._outcomes: dict[str, Outcome] = {}
        self._side_usage = SideUsage()
        self._questions = ToolQuestions(timeline, caller, resumed_at or caller, self._side_usage)

    async def run(self) -> Node:
        """Run the tools concurrently; return the node at which the model sees their results."""
        await self._store_placeholders()
        await gather_structured([partial(self._use, use) for use in self._uses])
        return await self._add_results()

    async def add_answer(self, reply: ElicitReply) -> None:
        """Store the answer to the question at which a tool is to be resumed."""
        await self._questions.add_answer(reply)

    async def resume(
        self, use: ToolUseBlock, tool: CalledTool, question: Node, reply: ElicitReply
    ) -> Node:
        """Resume the tool that has asked; return the node where the model sees the result."""
        resumed = tool.resume(self._tool_use(use), question, reply)
        await self._record(use, await self._outcome(use, resumed))
        return await self._add_results()

    async def _store_placeholders(self) -> None:
        """Store a placeholder for every result, if a tool lets branches see them meanwhile.

        Until a tool returns, its pending result says that it was interrupted: if the turn ends
        there, nothing has to be written any more.
        """
        used = (self._tools[use.name] for use in self._uses if use.name in self._tools)
        self._placeholder = next((tool.placeholder for tool in used if tool.placeholder), None)
        if self._placeholder is not None:
            interrupted = Outcome(NO_RESULT, is_error=True)
            results = [self._result(use.id, interrupted) for use in self._uses]
            await self._timeline.dependencies.store.set_results(results)

    async def _use(self, use: ToolUseBlock) -> None:
        await self._timeline.dependencies.listener(ToolStarted(self._caller.id, use))
        tool = self._tools.get(use.name)
        if tool is None:
            known = ", ".join(sorted(self._tools)) or "none"
            outcome = Outcome(f"There is no tool {use.name!r}. Tools: {known}.", is_error=True)
        elif _is_cut(self._caller, use):
            outcome = Outcome(CUT, is_error=True)
        else:
            outcome = await self._outcome(use, tool.use(self._tool_use(use)))
        await self._record(use, outcome)

    def _tool_use(self, use: ToolUseBlock) -> ToolUse:
        return ToolUse(
            use,
            self._caller,
            self._timeline,
            self._tools,
            self._questions,
            self._side_usage.of(use.id),
            partial(self._record, use),
        )

    async def _outcome(self, use: ToolUseBlock, work: Awaitable[Outcome]) -> Outcome:
        """Return the outcome of ``work``, or the outcome that stands for what it raises."""
        try:
            return await work
        except Exception as error:
            # Each tool use needs a result, or no provider accepts the thread. An error that was
            # not raised for the model's eyes may contain secrets, so its text goes to the log.
            if isinstance(error, AnabranchError) and not isinstance(error, StoreError):
                return Outcome(str(error), is_error=True)
            logger.exception("tool %r raised an unexpected exception", use.name)
            return Outcome(f"Error executing tool {use.name}", is_error=True)

    async def _record(self, use: ToolUseBlock, outcome: Outcome) -> None:
        """Store an outcome, for all that follows the caller; one of a resumed tool is held back."""
        self._outcomes[use.id] = outcome
        result = self._result(use.id, outcome)
        if not self._resumed:
            await self._timeline.dependencies.store.set_results([result])
        await self._timeline.dependencies.listener(ToolEnded(use, result))

    async def _add_results(self) -> Node:
        """Add the node at which the model sees the results."""
        self._placeholder = None
        results = [self._result(use_id, outcome) for use_id, outcome in self._outcomes.items()]
        usage, data = self._side_usage.take()
        last, thread_id = self._questions.last, self._timeline.thread.id
        node = self._timeline.dependencies.node(
            thread_id, last.id, "results", usage=usage, data=data
        )
        return await self._timeline.add(node, results)

    def _result(self, use_id: str, outcome: Outcome) -> Result:
        node_id = self._questions.last.id if self._resumed else self._caller.id
        content = outcome.blocks or (TextBlock(text=outcome.text),)
        if self._placeholder is None:
            return Result(node_id, use_id, content, outcome.is_error)
        shown = (TextBlock(text=self._placeholder),)
        return Result(node_id, use_id, shown, outcome.is_error, pending=content)


def _is_cut(caller: Node, use: ToolUseBlock) -> bool:
    """Whether the reply ended inside of ``use``, at its limit of tokens.

    Its input does not show that: where nothing of it has arrived, it is empty.
    """
    return caller.data.get("stop_reason") == "maxTokens" and caller.content[-1] == use

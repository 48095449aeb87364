"""Tools that the front end of a run executes, as tools of the agent that leads the conversation.

A call of such a tool waits like a question. The tree has its node, no process has to be alive, and
the front end returns the answer. The answer does not need the tool's definition: the run that
brings the result may offer other tools.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from anabranch._engine import Ask
from anabranch.agents._agent_tools import Asked, Outcome, ToolUse
from anabranch.agents._batch_line import AskedRound
from anabranch.agents._tool_questions import (
    IN_FRONT_END,
    FrontEndCall,
    FrontEndResult,
    TimeOver,
    reply_of,
)
from anabranch.messages import ToolSpec

NO_RESULT_IN_TIME = "The application has returned no result in time."


class FrontEndTool:
    """A tool of an agent; the front end runs its calls."""

    placeholder: str | None = None

    def __init__(self, spec: ToolSpec) -> None:
        self.spec = spec

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.spec.name

    async def use(self, here: ToolUse) -> Asked:
        """Return the request to the front end."""
        return Asked((Ask(here.block.id, IN_FRONT_END, FrontEndCall(tool=self.name), ""),), "")


class FrontEndTools:
    """A :class:`~anabranch.agents.ToolSource` of the tools that a front end offers."""

    def __init__(self, specs: Iterable[ToolSpec]) -> None:
        self._tools = [FrontEndTool(spec) for spec in specs]

    def offered_tools(self, taken: Collection[str], /) -> Sequence[FrontEndTool]:
        """Return the tools whose names are not ``taken``: no tool of the agent is replaced."""
        return [tool for tool in self._tools if tool.name not in taken]


def front_end_outcome(round_: AskedRound) -> Outcome:
    """Return the outcome of a call that the front end has answered."""
    reply = reply_of(round_.answers[round_.id])
    match reply:
        case FrontEndResult():
            return Outcome(reply.result, reply.is_error)
        case TimeOver():
            return Outcome(NO_RESULT_IN_TIME, is_error=True)
        case _:
            return Outcome.interrupted()

"""The port of a tool that an agent's model can call, and what such a tool can use while it runs.

Anabranch tools fill this port in one way (:class:`~anabranch.agents._called_tool.CalledTool`);
tools that work on the conversation itself, such as ``branch_self``, implement it directly.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, Protocol, runtime_checkable

from anabranch._asking.answerer import Absent, Answerer
from anabranch._engine import Ask
from anabranch.agents._batch_line import AnsweredRound
from anabranch.agents._events import Event
from anabranch.agents._ports import Model
from anabranch.agents._timeline import Timeline
from anabranch.agents._turn_limits import UsageTotal
from anabranch.errors import AnabranchError, OtherVersionError, StoreError, UnreachableError, masked
from anabranch.messages import (
    ResultBlock,
    SampleReply,
    SampleRequest,
    TextBlock,
    ToolSpec,
    ToolUseBlock,
)
from anabranch.tree import NO_RESULT, NO_RESULT_CONTENT, Node, Path

logger: logging.Logger = logging.getLogger("anabranch.agents")

ELSEWHERE = (OtherVersionError, UnreachableError)
"""Why a turn goes on later, or in another process, from where its tools are."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a tool returns to the model.

    Attributes:
        text: the text of the tool's result.
        is_error: whether the tool has failed.
        blocks: the result, if it has more than a text, such as images.
        is_interrupted: whether the tool has returned nothing, since it was interrupted.
    """

    text: str
    is_error: bool = False
    blocks: tuple[ResultBlock, ...] = ()
    is_interrupted: bool = False

    @classmethod
    def interrupted(cls) -> Outcome:
        """Return the outcome of a tool that was interrupted before it returned anything."""
        return cls(NO_RESULT, is_error=True, blocks=NO_RESULT_CONTENT, is_interrupted=True)

    def with_line(self, line: str, mark: Literal["budget"] | None = None) -> Outcome:
        """Return it with a line at its end."""
        blocks = self.blocks or (TextBlock(text=self.text),)
        return replace(self, blocks=(*blocks, TextBlock(text=f"\n{line}", mark=mark)))


def failed(tool: str, error: Exception) -> Outcome:
    """Return the outcome of a tool that has raised ``error``, which is logged if it is unexpected.

    An error that was not raised for the model's eyes may contain secrets, so its text goes to the log.
    """
    if isinstance(error, AnabranchError) and not isinstance(error, StoreError):
        return Outcome(str(error), is_error=True)
    shown = masked(f"Error executing tool {tool}", error)
    logger.error("tool %r raised an unexpected exception: %s", tool, shown, exc_info=error)
    return Outcome(shown, is_error=True)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a tool asks before it can return anything.

    The questions are stored, and the tool is used again with the answers, in whatever process.

    Attributes:
        asks: what it asks.
        state: what it will be resumed from.
        until: when it goes on with the answers that there are; ``None`` if it waits for all.
    """

    asks: tuple[Ask, ...]
    state: str
    until: float | None = None


@dataclass(frozen=True, slots=True)
class AskedInBranches:
    """What a tool returns whose branches wait for answers to questions of their tools.

    How far they are is in the tree. The tool is used again when one of them can go on, or all have
    ended.
    """


@dataclass(frozen=True, slots=True)
class Asleep:
    """What a tool returns whose call waits for a time, and is stored.

    Nothing of it is alive. The tool is used again, in whatever process; before the time, it returns
    this once more.

    Attributes:
        until: the time, in seconds since the epoch.
    """

    until: float


@dataclass(frozen=True, slots=True)
class Continuation:
    """How a turn, and each branch that it opens, goes on at questions and sleeps.

    Attributes:
        person: answers them at once; without one, the turn ends at them.
        within: the first nodes of the branches that go on, of those that were open before;
            ``None`` if all do.
        is_left: whether the person has left the questions: tools end, and the model is not asked.
        is_stopped: whether what tools have done is undone that wait for no answer, instead; and
            where such a tool is in a branch, of all that were opened with it.
    """

    person: Answerer | None = None
    within: frozenset[str] | None = None
    is_left: bool = False
    is_stopped: bool = False

    @property
    def is_over(self) -> bool:
        """Whether the turn ends with its tools."""
        return self.is_left or self.is_stopped

    @property
    def in_branches(self) -> Continuation:
        """How branches go on: if the tool that has opened them is stopped, their questions are left."""
        return replace(self, person=Absent(), is_left=True) if self.is_stopped else self


class AgentTool(Protocol):
    """A tool that a model can call: made by the library, and given to an agent.

    Attributes:
        spec: describes the tool to the model.
    """

    spec: ToolSpec

    @property
    def name(self) -> str:
        """The name by which the model calls it."""
        ...


@runtime_checkable
class UsableTool(AgentTool, Protocol):
    """A tool that a turn can use.

    If ``use`` raises an :class:`~anabranch.AnabranchError` other than a ``StoreError``, the model
    reads its message; any other exception is logged, and the model reads only that the tool failed.

    Attributes:
        placeholder: shown as the result of every tool in the batch while they run, to branches
            that see the unfinished turn; ``None`` if the tool opens no such branches.
    """

    placeholder: str | None

    async def use(self, here: ToolUse) -> Outcome | Asked | AskedInBranches | Asleep:
        """Run the tool for one tool use; return its outcome, or what it asks or waits for first."""
        ...


@dataclass(frozen=True, slots=True)
class ToolUse:
    """One use of a tool, as the tool sees it.

    Attributes:
        block: the tool use in the model's reply, with the input.
        caller: the node of that reply.
        timeline: the path that is being extended, with the agent's dependencies.
        tools: all tools of the agent, by name.
        answered: what the tool has asked in its last round, with the answers; ``None`` before.
        side_usage: usage of requests beside the thread; stored with the next node of the tools.
        record: stores an outcome before the tool returns, in case it never does.
        continuation: how the turn goes on at questions.
        above: the path to what the caller follows, ``None`` if it was not read.
    """

    block: ToolUseBlock
    caller: Node
    timeline: Timeline
    tools: Mapping[str, UsableTool]
    answered: AnsweredRound | None
    side_usage: UsageTotal
    record: Callable[[Outcome], Awaitable[None]]
    continuation: Continuation
    above: Path | None = None

    async def sample(self, request: SampleRequest) -> SampleReply:
        """Return what the agent's model replies to ``request``, which is not of this thread.

        Raises:
            TurnLimitError: a limit of the turn is used up.
            Exception: what the model raises.
        """
        return await self.timeline.sample(request, total=self.side_usage)

    async def aside(self, prompt: str, model: Model | None = None) -> str:
        """Return what the agent's model, or another, replies to ``prompt`` alone.

        Raises:
            TurnLimitError: a limit of the turn is used up.
            Exception: what the model raises.
        """
        return await self.timeline.aside(prompt, model, self.side_usage)

    async def emit(self, event: Event) -> None:
        """Send ``event`` to the agent's listener."""
        await self.timeline.dependencies.listener(event)

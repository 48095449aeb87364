"""Defines the tools that an agent's model can call, and the data that a tool gets for each use."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar, runtime_checkable

from pydantic import BaseModel, ValidationError

from anabranch._asking import Absent, Answerer, reason_of
from anabranch._engine import Ask
from anabranch.agents._batch_line import AnsweredRound
from anabranch.agents._branch_progress import BranchProgress
from anabranch.agents._events import Event
from anabranch.agents._timeline import Timeline
from anabranch.agents._turn_limits import TurnLimitError, UsageTotal
from anabranch.errors import (
    AnabranchError,
    OtherVersionError,
    StoreError,
    ToolError,
    UnreachableError,
    masked,
)
from anabranch.messages import ResultBlock, TextBlock, ToolSpec, ToolUseBlock
from anabranch.tree import NO_RESULT, NO_RESULT_CONTENT, Node, Path

logger: logging.Logger = logging.getLogger("anabranch.agents")

ELSEWHERE = (OtherVersionError, UnreachableError)
"""The errors after which a turn continues later, or in another process, at its tools."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result that a tool returns to the model; ``blocks``, if any, replace ``text``."""

    text: str
    is_error: bool = False
    blocks: tuple[ResultBlock, ...] = ()
    is_interrupted: bool = False

    @classmethod
    def interrupted(cls) -> Outcome:
        return cls(NO_RESULT, is_error=True, blocks=NO_RESULT_CONTENT, is_interrupted=True)

    def with_warning(self, line: str) -> Outcome:
        blocks = self.blocks or (TextBlock(text=self.text),)
        return replace(self, blocks=(*blocks, TextBlock(text=f"\n{line}", mark="budget")))


def failed(tool: str, error: Exception) -> Outcome:
    """Return the outcome of ``error``; log an unexpected error, whose text may contain secrets."""
    if isinstance(error, AnabranchError) and not isinstance(error, StoreError):
        return Outcome(str(error), is_error=True)
    shown = masked(f"Error executing tool {tool}", error)
    logger.error("tool %r raised an unexpected exception: %s", tool, shown, exc_info=error)
    return Outcome(shown, is_error=True)


M = TypeVar("M", bound=BaseModel)


def read_input(
    model: type[M], given: Mapping[str, Any], name: str, remedy: str = "Correct it."
) -> M:
    """Return the validated input of the tool ``name``; the text of a ``ToolError`` ends with ``remedy``."""
    try:
        return model.model_validate(dict(given))
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(map(str, problem["loc"]))
        raise ToolError(f"{name} was not run: {where}: {reason_of(problem)}. {remedy}") from None


@dataclass(frozen=True, slots=True)
class Waiting:
    """A tool that has not returned: it asks, its stored call sleeps, or its branches wait.

    Attributes:
        asks: the questions of the tool; empty if it sleeps, or its branches wait.
        state: the journal of a call that asks.
        until: the end of the sleep, or the time at which the tool continues with the answers so
            far; ``None`` without such a time.
        call: the id of a stored call that asks.
    """

    asks: tuple[Ask, ...] = ()
    state: str = ""
    until: float | None = None
    call: str = ""


@dataclass(frozen=True, slots=True)
class Continuation:
    """The rules by which a turn continues when its tools ask questions or sleep.

    Attributes:
        user: answers questions immediately; without one, the turn ends at questions.
        within: the first nodes of the open branches that continue; ``None`` if all continue.
        is_left: whether the user sent a message in place of answers: tools read ``cancel`` and end.
        is_stopped: whether the user stopped the turn: tools without open questions are undone.
    """

    user: Answerer | None = None
    within: frozenset[str] | None = None
    is_left: bool = False
    is_stopped: bool = False

    @property
    def is_over(self) -> bool:
        return self.is_left or self.is_stopped

    @property
    def in_branches(self) -> Continuation:
        return replace(self, user=Absent(), is_left=True) if self.is_stopped else self


class AgentTool(Protocol):
    """A tool that only agents can run, such as ``branch_self``.

    Attributes:
        spec: describes the tool to the model.
    """

    spec: ToolSpec

    @property
    def name(self) -> str:
        """The name by which the model calls the tool."""
        return self.spec.name


@runtime_checkable
class UsableTool(AgentTool, Protocol):
    """A tool that a turn can use; branches see ``placeholder`` in place of a running tool's result.

    If ``use`` raises an :class:`~anabranch.AnabranchError` other than a ``StoreError``, the model reads
    its message. Of any other exception, the model reads only that the tool has failed.
    """

    placeholder: str | None = None

    async def use(self, here: ToolUse) -> Outcome | Waiting: ...


@dataclass(frozen=True, slots=True)
class ToolUse:
    """The data that a tool gets for one use: its input, the conversation, and earlier answers.

    Attributes:
        side_usage: usage of requests outside the thread; stored with the next node of the tools.
        record: stores an outcome before the tool returns, in case it never does.
    """

    block: ToolUseBlock
    caller: Node
    timeline: Timeline
    tools: Mapping[str, UsableTool]
    answered: AnsweredRound | None
    side_usage: UsageTotal
    record: Callable[[Outcome], Awaitable[None]]
    continuation: Continuation
    path: Path

    @property
    def depth(self) -> int:
        return sum(node.kind == "branch" for node in self.path.nodes)

    async def open_branches(self, count: int) -> None:
        """Count branches before the tool opens them."""
        name, most = self.block.name, self.timeline.dependencies.limits.max_depth
        if self.depth >= most:
            raise ToolError(
                f"{name} was not run: this is a branch at depth {self.depth}, and branches may be"
                f" nested {most} deep. Do the task here, without branching."
            )
        try:
            await self.timeline.meter.open_branches(count)
        except TurnLimitError as error:
            raise ToolError(
                f"{name} was not run: it opens {count} more, and {error.used:g} of at most"
                f" {error.limit:g} branches are open. Do the task here, without branching."
            ) from None

    async def branches(self) -> BranchProgress:
        store, clock = self.timeline.dependencies.store, self.timeline.dependencies.clock
        return await BranchProgress.below(store, self.caller, now=clock.now())

    async def emit(self, event: Event) -> None:
        await self.timeline.dependencies.listener(event)

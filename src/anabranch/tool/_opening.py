"""The way of every edge to a call: checks that it was given tools, and makes a call of a tool."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from anabranch._aio import Clock, Ids, SystemClock, SystemIds
from anabranch._asking import Host, count_answers, first_arguments, wrong_kind
from anabranch._budget import Limits
from anabranch._engine import STEP_THREADS, Branch, Call, Journal, Recorder, Sink, checked_patience
from anabranch._telemetry import observe
from anabranch.errors import AnabranchError
from anabranch.messages import Message
from anabranch.tool._context import BranchContext
from anabranch.tool._tools import Tool

T = TypeVar("T")
logger: logging.Logger = logging.getLogger("anabranch")

_A_TOOL = "an async function decorated with @tool, or an instance of a HandoffTool"

WARN_AT_ROUND = 8
"""The round that logs a warning: known clients (Python, TypeScript, C#, Go) stop after ten rounds."""


def require_tool(where: str, given: object) -> None:
    if not isinstance(given, Tool):
        raise wrong_kind(where, f"a tool, {_A_TOOL}", given)


def require_list(where: str, wanted: str, given: Iterable[T]) -> tuple[T, ...]:
    """Return the items of ``given``, an argument of ``where``, which may be an iterator."""
    if isinstance(given, Tool) or not isinstance(given, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance] - for callers without types
        raise wrong_kind(where, wanted, given)
    return tuple(given)


def require_tools(where: str, given: Iterable[T], *others: type) -> tuple[T, ...]:
    """Return the items of ``given``, an argument of ``where``: tools, or instances of ``others``."""
    tools = require_list(where, "a list of tools", given)
    for each in tools:
        if not isinstance(each, (Tool, *others)):
            raise wrong_kind(where, f"tools, each {_A_TOOL}", each)
    return tools


@dataclass(frozen=True, slots=True)
class Runtime:
    """The environment of the calls at an edge: limits, clock, ids, and the conversation that calls."""

    limits: Limits = field(default_factory=Limits)
    patience: float | None = None
    clock: Clock = field(default_factory=SystemClock)
    ids: Ids = field(default_factory=SystemIds)
    parent_messages: tuple[Message, ...] = ()
    parent_system_prompt: str | None = None
    step_threads: int = STEP_THREADS
    version: str = ""

    def __post_init__(self) -> None:
        checked_patience(self.patience)

    def is_other(self, version: str) -> bool:
        """Return whether ``version`` is known to be another version of the code."""
        return bool(version and self.version) and version != self.version


def new_journal(runtime: Runtime, call_id: str = "") -> Journal:
    # Rounded to milliseconds, since every state carries the number.
    started = round(runtime.clock.now(), 3)
    return Journal(call_id or runtime.ids.call_id(), started, secret=runtime.ids.secret())


def patience_of(runtime: Runtime, tool: Tool[Any]) -> float | None:
    return min(filter(None, (runtime.patience, tool.patience)), default=None)


def open_call(
    tool: Tool[T],
    arguments: Mapping[str, Any],
    journal: Journal,
    *,
    host: Host,
    runtime: Runtime,
    sink: Sink,
    recorder: Recorder | None = None,
    make: Callable[..., Call[Any]] = Call,
) -> Call[T]:
    """Return a call of ``tool`` with validated ``arguments``.

    The tool's requirements are checked before its body starts; a failure is the call's error.
    """

    async def body(branch: Branch) -> T:
        host.require(*sorted(tool.requires))
        ctx = BranchContext(
            call,
            branch,
            host,
            elicits=tool.elicits,
            parent_messages=runtime.parent_messages,
            parent_system_prompt=runtime.parent_system_prompt,
        )
        given = first_arguments(call, branch, branch.path, tool, arguments)
        try:
            value = await tool.run(ctx, given)
        except ExceptionGroup as group:  # of a task group in the body
            error = _first_of(group)
            if error is None:
                raise
            raise error from group
        tool.check_value(value)
        return value

    count_answers(journal)
    call = make(
        body,
        journal,
        name=tool.name,
        limits=runtime.limits.narrowed(tool.limits),
        clock=runtime.clock,
        sink=sink,
        recorder=recorder,
        patience=patience_of(runtime, tool),
        step_threads=runtime.step_threads,
        observe=observe,
    )
    return call


def _first_of(group: ExceptionGroup[Exception]) -> AnabranchError | None:
    """Return the first error in ``group`` if callers may read all of its errors, else ``None``."""
    left: list[Exception] = [group]
    first: AnabranchError | None = None
    while left:
        error = left.pop()
        if isinstance(error, ExceptionGroup):
            inner = cast("ExceptionGroup[Exception]", error)
            left += reversed(inner.exceptions)
        elif not isinstance(error, AnabranchError):
            return None
        else:
            first = first or error
    return first


def warn_of_rounds(tool: str, journal: Journal) -> bool:
    """Warn, once per call, that the call approaches the number of rounds that clients allow."""
    near = journal.rounds == WARN_AT_ROUND
    if near:
        logger.warning(
            "tool %r has asked in %d rounds of one call; most clients give up after 10."
            " Ask several questions at once (ctx.gather), or put them into one form.",
            tool,
            journal.rounds,
        )
    return near

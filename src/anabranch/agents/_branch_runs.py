"""Runs of branches from their prompts, concurrently or one after the other.

The branches share the limits of the turn that opens them and nothing else. A failure in one is
recorded on that branch, in words that a model and a person can read, and does not affect the others.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import anyio
from pydantic import JsonValue

from anabranch._engine.clock import Clock
from anabranch._shielded import run_shielded
from anabranch.agents._gather_structured import gather_structured
from anabranch.agents._timeline import RequestMessages
from anabranch.agents._turn import Turn
from anabranch.agents._turn_limits import TurnLimitError
from anabranch.agents._working_branch import WorkingBranch
from anabranch.errors import (
    AnabranchError,
    BranchLimitError,
    BranchTimeoutError,
    BranchTokenError,
)
from anabranch.models import INTERRUPTED, ModelError
from anabranch.tree import Node

__all__ = ["BranchOutcome", "run_branches"]

logger: logging.Logger = logging.getLogger("anabranch.agents")

SUMMARISE = (
    "(forced to return): This branch has reached a limit. Use no more tools: say now what the outcome"
    " is so far, what was changed, and what is still open."
)


@dataclass(frozen=True, slots=True)
class BranchOutcome:
    """How a branch has ended.

    Attributes:
        start: the node of its prompt.
        end: its last node; if it has failed, the node that says so.
        error: why it has failed, ``None`` if it has not.
        partial: what was received of the reply in which it has failed.
    """

    start: Node
    end: Node
    error: str | None = None
    partial: str = ""

    @property
    def text(self) -> str:
        """The text of its last reply; empty if it has failed."""
        return "" if self.error is not None else self.end.text


async def run_branches(
    turn: Turn,
    starts: Iterable[tuple[Node, RequestMessages | None]],
    outcomes: dict[str, BranchOutcome],
    *,
    work: bool,
    parallel: bool,
    working: WorkingBranch | None = None,
    meanwhile: Sequence[Callable[[], Awaitable[None]]] = (),
) -> None:
    """Let the model reply at each of ``starts``, whose nodes are stored already.

    Args:
        turn: the turn that opens the branches; its limits apply.
        starts: the node of each prompt, with its path as messages where that is known.
        outcomes: receives each branch's outcome as soon as it ends, by the id of its start. After
            an interruption it holds the branches that had ended.
        work: run each branch until it calls no more tools, instead of one reply.
        parallel: run the branches concurrently, instead of one after the other.
        working: the branch of folding that they work in, if it is another than the turn's.
        meanwhile: jobs to run at the same time.
    """

    async def in_order() -> None:
        for job in jobs:
            await job()

    jobs = [
        partial(_run_branch, turn.branch(working), *start, outcomes, work=work) for start in starts
    ]
    await gather_structured([*(jobs if parallel else [in_order]), *meanwhile])


async def _run_branch(
    turn: Turn,
    start: Node,
    messages: RequestMessages | None,
    outcomes: dict[str, BranchOutcome],
    *,
    work: bool,
) -> None:
    running = turn.run(start, messages) if work else turn.timeline.reply(start, messages)
    try:
        end = await _in_time(turn, start, running)
    except (TurnLimitError, BranchTokenError) as limit:
        outcomes[start.id] = await _forced(turn, start, limit)
    except Exception as error:  # noqa: BLE001 - an unexpected one is logged by _message
        # Models and listeners may raise anything; if it left the branch, it would end the others.
        outcomes[start.id] = await run_shielded(_record_failure(turn, start, error))
    else:
        outcomes[start.id] = BranchOutcome(start, end)


async def _in_time(turn: Turn, start: Node, work: Awaitable[Node]) -> Node:
    """Wait for ``work`` until the time of the branch is over, or the turn's for each branch."""
    timeline, clock = turn.timeline, turn.timeline.dependencies.clock
    timeout, working = timeline.dependencies.limits.timeout, timeline.branch_of_folding
    seconds = math.inf if timeout is None else timeout
    if working is not None:
        seconds = min(seconds, working.seconds_left)
    return await (work if seconds == math.inf else _within(clock, seconds, start, work))


async def _forced(turn: Turn, start: Node, limit: AnabranchError) -> BranchOutcome:
    """Let a branch that has reached a limit say what it has, if another limit allows that."""
    timeline, working = turn.timeline, turn.timeline.branch_of_folding
    last = timeline.last_added
    if last is None:  # it has done nothing that it could speak of
        return await run_shielded(_record_failure(turn, start, limit))
    if working is not None:
        working.is_summarising = True
        if working.rolls_back:  # what tools returned last is too large, even for this
            last = timeline.last_request or start
    prompt = timeline.dependencies.node(start.thread_id, last.id, "user", SUMMARISE)
    try:
        end = await _in_time(turn, start, timeline.reply(await timeline.add(prompt)))
    except Exception as error:  # noqa: BLE001 - what it has said before will do
        logger.debug("no summary of the branch at %r: %s", start.id, _message(error))
        return await run_shielded(_record_failure(turn, start, limit))
    return BranchOutcome(start, end, str(limit), timeline.last_text)


async def _within(clock: Clock, seconds: float, start: Node, work: Awaitable[Node]) -> Node:
    with anyio.CancelScope() as scope:
        timer = clock.call_at(clock.now() + seconds, scope.cancel)
        try:
            return await work
        finally:
            timer.cancel()
    raise BranchTimeoutError(start.id, seconds)


async def _record_failure(turn: Turn, start: Node, error: Exception) -> BranchOutcome:
    """Add a node to the branch that says why it has failed."""
    message = _message(error)
    timeline = turn.timeline
    last = timeline.last_added or start
    cut = last.kind == "assistant" and last.data.get("stop_reason") in {"error", INTERRUPTED}
    at_limit = isinstance(error, TurnLimitError | BranchLimitError)
    partial = last.text if cut else timeline.last_text if at_limit else ""
    data: dict[str, JsonValue] = {"stop_reason": "error", "error": message}
    text = f"(this branch has failed): {message}"
    node = timeline.dependencies.node(start.thread_id, last.id, "assistant", text, data=data)
    try:
        return BranchOutcome(start, await timeline.add(node), message, partial)
    except Exception:
        # The store itself has failed, or a listener: the other branches go on, and the summary
        # reports this failure in any case.
        logger.exception("the failure of the branch at %r could not be recorded", start.id)
        return BranchOutcome(start, last, message, partial)


def _message(error: Exception) -> str:
    """Return the text of an error that may be shown; log any other, and name its type alone."""
    if isinstance(error, AnabranchError | ModelError):
        return str(error)
    logger.error("a branch has failed", exc_info=error)
    return f"An unexpected error ({type(error).__name__}); the log has the details."

"""Runs branches, at the same time or in order; a failure in one does not affect the others."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import anyio
from pydantic import JsonValue

from anabranch._aio import all_or_first_error, run_shielded
from anabranch.agents._agent_tools import ELSEWHERE
from anabranch.agents._branch_progress import ERROR, PARTIAL, BranchOutcome
from anabranch.agents._events import BranchEnded, BranchResumed
from anabranch.agents._line_writer import surroundings_of
from anabranch.agents._timeline import RequestMessages
from anabranch.agents._turn import Turn
from anabranch.agents._turn_limits import TurnLimitError
from anabranch.agents._working_branch import WorkingBranch
from anabranch.errors import AnabranchError, BranchTimeoutError, BranchTokenError
from anabranch.models import INTERRUPTED, ModelError
from anabranch.tree import SHOWN, Node, Path, longer_path, project_each

logger: logging.Logger = logging.getLogger("anabranch.agents")


@dataclass(frozen=True, slots=True)
class BranchPath:
    """The nodes of a branch so far; for a new branch, also the whole path and its messages."""

    nodes: Sequence[Node]
    whole: Path | None = None
    messages: RequestMessages | None = None


def new_branches(path: Path, starts: Sequence[Node]) -> list[BranchPath]:
    each = zip(starts, project_each(path.nodes, starts, path.results), strict=True)
    return [BranchPath([start], longer_path(path, [start]), known) for start, known in each]


SUMMARISE = (
    "(forced to return): This branch has reached a limit. Use no more tools: say now what the outcome"
    " is so far, what was changed, and what is still open."
)


async def run_branches(
    turn: Turn,
    paths: Iterable[BranchPath],
    outcomes: dict[str, BranchOutcome],
    *,
    work: bool,
    parallel: bool,
    working: WorkingBranch | None = None,
    meanwhile: Sequence[Callable[[], Awaitable[object]]] = (),
) -> None:
    """Let the model reply in each of the stored branches ``paths``, until it ends or waits.

    Args:
        turn: the turn that opens the branches; its limits apply.
        paths: the branches; a branch that began earlier continues from its last node.
        outcomes: receives each outcome by the branch's first node, also before an interruption.
        work: run each branch until it calls no more tools, instead of one reply.
        parallel: run the branches concurrently, instead of one after the end of the other.
        working: the branch of folding in which the branches work, if it differs from the turn's.
        meanwhile: jobs to run at the same time.

    An error of :data:`ELSEWHERE` is raised after the other branches have run as far as possible.
    """
    elsewhere: list[AnabranchError] = []

    async def run(path: BranchPath) -> BranchOutcome:
        try:
            outcome = await _run_branch(turn.branch(working), path, work=work)
        except ELSEWHERE as other:
            elsewhere.append(other)
            return BranchOutcome(path.nodes[0], path.nodes[-1], waits=True)
        outcomes[path.nodes[0].id] = outcome
        if not outcome.waits:
            await _report(turn, outcome)
        return outcome

    async def in_order() -> None:
        for job in jobs:
            if (await job()).waits:
                break

    jobs = [partial(run, path) for path in paths]
    await all_or_first_error([*(jobs if parallel else [in_order]), *meanwhile])
    if elsewhere:
        raise elsewhere[0]


async def _run_branch(turn: Turn, path: BranchPath, *, work: bool) -> BranchOutcome:
    start = path.nodes[0]
    try:
        end = await _in_time(turn, start, _running(turn, path, work=work))
    except (TurnLimitError, BranchTokenError) as limit:
        return await _forced(turn, start, limit)
    except ELSEWHERE:
        raise
    except Exception as error:  # noqa: BLE001 - an unexpected one is logged by _message
        if turn.timeline.dependencies.suspension.begun:  # some process continues the branch
            return BranchOutcome(start, path.nodes[-1], waits=True)
        # Models and listeners may raise anything; outside of its branch, an error would end the
        # others.
        return await run_shielded(_record_failure(turn, start, error))
    working = turn.timeline.branch_of_folding
    has_returned = working is not None and working.returned is not None
    is_at_tools = work and (end.kind != "assistant" or bool(end.tool_uses)) and not has_returned
    waits = is_at_tools or end is start
    return BranchOutcome(start, end, waits=waits)


async def _report(turn: Turn, outcome: BranchOutcome) -> None:
    try:
        await turn.timeline.dependencies.listener(BranchEnded(outcome))
    except Exception:  # outside of this branch, the error would end the others
        logger.exception(
            "the listener raised an error for the end of the branch at %r", outcome.start.id
        )


async def _running(turn: Turn, path: BranchPath, *, work: bool) -> Node:
    dependencies, nodes = turn.timeline.dependencies, path.nodes
    if len(nodes) > 1:
        around = await surroundings_of(dependencies.store, nodes[-1])
        await turn.timeline.continue_from(nodes, around)
        return await turn.resume(around)
    if turn.continuation.is_over:  # the branch has not begun, and does not begin now
        return nodes[0]
    if path.whole is None:  # another process, or an earlier turn, opened the branch
        await dependencies.listener(BranchResumed(tuple(nodes)))
    whole = path.whole or await dependencies.store.path(nodes[0].id)
    return await (turn.run if work else turn.timeline.reply)(whole, path.messages)


async def _in_time(turn: Turn, start: Node, work: Awaitable[Node]) -> Node:
    clock, working = turn.timeline.dependencies.clock, turn.timeline.branch_of_folding
    timeout = turn.timeline.dependencies.limits.timeout
    seconds = math.inf if timeout is None else timeout
    if working is not None:
        seconds = min(seconds, working.seconds_left)
    if seconds == math.inf:
        return await work
    with anyio.CancelScope() as scope:
        timer = clock.call_at(clock.now() + seconds, scope.cancel)
        try:
            return await work
        finally:
            timer.cancel()
    raise BranchTimeoutError(start.id, seconds)


async def _forced(turn: Turn, start: Node, limit: AnabranchError) -> BranchOutcome:
    timeline, working = turn.timeline, turn.timeline.branch_of_folding
    last = timeline.last_added
    if last is None:  # the branch has done nothing that a summary could report
        return await run_shielded(_record_failure(turn, start, limit))
    if working is not None:
        working.is_summarising = True
        if working.rolls_back:  # the last results of tools are too large, even for this request
            last = timeline.last_request or start
    shown = f"(forced to return): {limit}"
    data: dict[str, JsonValue] = {ERROR: str(limit), SHOWN: shown}
    prompt = timeline.dependencies.node(start.thread_id, last.id, "user", SUMMARISE, data=data)
    try:
        added = await timeline.add(prompt)
        path = await timeline.dependencies.store.path(added.id)
        end = await _in_time(turn, start, timeline.reply(path, concludes=True))
    except Exception as error:  # noqa: BLE001 - the branch's earlier text is enough
        logger.debug("no summary of the branch at %r: %s", start.id, _message(error))
        return await run_shielded(_record_failure(turn, start, limit))
    return BranchOutcome(start, end, str(limit), timeline.last_text)


async def _record_failure(turn: Turn, start: Node, error: Exception) -> BranchOutcome:
    message = _message(error)
    timeline = turn.timeline
    last = timeline.last_added or start
    cut = last.kind == "assistant" and last.data.get("stop_reason") in {"error", INTERRUPTED}
    partial = last.text if cut else timeline.last_text
    data: dict[str, JsonValue] = {"stop_reason": "error", ERROR: message, PARTIAL: partial}
    text = f"(this branch has failed): {message}"
    node = timeline.dependencies.node(start.thread_id, last.id, "assistant", text, data=data)
    try:
        return BranchOutcome(start, await timeline.add(node), message, partial)
    except Exception:
        # The store itself has failed, or a listener: the other branches continue, and the summary
        # reports this failure in any case.
        logger.exception("the failure of the branch at %r could not be recorded", start.id)
        return BranchOutcome(start, last, message, partial)


def _message(error: Exception) -> str:
    if isinstance(error, AnabranchError | ModelError):
        return str(error)
    logger.error("a branch has failed", exc_info=error)
    return f"An unexpected error ({type(error).__name__}); the log has the details."

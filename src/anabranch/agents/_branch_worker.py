"""A worker of branches: what any process does with branches that a turn has opened for workers.

A turn whose agent shares its branches ends where tools open several at once. Who leads the turn then asks
what is left to do, and calls workers for the branches. A worker takes a branch as far as it comes; all of
that is in the tree before anyone asks again. So it does not matter which process asks, nor how often.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

from anabranch.agents._agent import Agent
from anabranch.agents._agent_tools import AgentTool, BranchingTool, Continuation, ToolUse
from anabranch.agents._batch_line import BatchLine
from anabranch.agents._branch_progress import SHARE, BranchProgress
from anabranch.agents._branch_shares import share_of, spent_in_branch
from anabranch.agents._events import BranchResumed
from anabranch.agents._line_writer import LineWriter
from anabranch.agents._meter import Meter
from anabranch.agents._timeline import Timeline
from anabranch.agents._tool_batch import ToolBatch
from anabranch.errors import ToolError
from anabranch.messages import ToolUseBlock
from anabranch.tree import Node


@dataclass(frozen=True, slots=True)
class WorkLeft:
    """What can go on in a branch, or because of one, without another answer.

    Attributes:
        here: whether it can go on itself, or the turn can.
        branches: the first nodes of the branches with which workers can go on.
        until: when its tools go on without the answers for which they wait; for most, never.
        at: the id of the last node.
        at_tools: whether that is where tools have not returned.
    """

    here: bool = False
    branches: tuple[Node, ...] = ()
    until: float = math.inf
    at: str = field(default="", compare=False)
    at_tools: bool = field(default=False, compare=False)


class BranchWorker:
    """Works on branches that have shares, of the turns of ``agent``."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._store = agent.store

    async def left(self, start: Node, *, asleep: Container[tuple[str, str]] = ()) -> WorkLeft:
        """Return what is left to do in the branch that begins with ``start``.

        What is known to be ``asleep`` is left out: tool uses, each after the id of its caller, and
        branches, by the ids of their first nodes.

        Raises:
            StoreError: the store failed.
        """
        return _left(await self._progress(start.thread_id, asleep), start)

    async def open_in(self, thread_id: str) -> list[Node]:
        """Return the first nodes of the branches that workers work on, until these have ended.

        Raises:
            StoreError: the store failed.
        """
        tree = await self._store.tree(thread_id)
        progress = BranchProgress(tree.nodes, tree.results)
        return [each for each in tree.nodes if SHARE in each.data and not progress.is_over(each)]

    async def roused_by(self, start: Node, asleep: Container[tuple[str, str]] = ()) -> WorkLeft:
        """Return what can go on because a branch has ended, or has come as far as it can.

        That is the turn, ``here``, or a branch around it; ``asleep`` is as for :meth:`left`.

        Raises:
            StoreError: the store failed.
        """
        progress = await self._progress(start.thread_id, asleep)
        path = (await self._store.path(start.id)).nodes
        for around in reversed([each for each in path[:-1] if SHARE in each.data]):
            found = _left(progress, around)
            if found.here:
                return WorkLeft(branches=(around,))
            if found.branches:
                return WorkLeft()
        end = await self._agent.end(start.thread_id, asleep=asleep)
        return WorkLeft(here=end is not None and (end.goes_on_here or not end.branches))

    async def _progress(self, thread_id: str, asleep: Container[tuple[str, str]]) -> BranchProgress:
        tree, now = await self._store.tree(thread_id), self._agent.dependencies.clock.now()
        return BranchProgress(tree.nodes, tree.results, asleep, now)

    async def work_on(self, start: Node) -> None:
        """Take a branch to its end, or as far as it comes.

        Raises:
            OtherVersionError: it can only go on with other code.
            ToolError: there is no such branch, or no such tool any more.
            StoreError: the store failed.
        """
        tool, here = await self._use(start)
        if not await self._store.children(start.id):  # any other says so when it goes on
            await here.emit(BranchResumed((start,)))
        await tool.work_on(here, start)

    async def fail(self, start: Node, reason: str) -> None:
        """End a branch, which is not worked on any more, with an error.

        Raises:
            ToolError: there is no such branch, or no such tool any more.
            StoreError: the store failed.
        """
        tool, here = await self._use(start)
        await tool.fail(here, start, reason)

    async def _use(self, start: Node) -> tuple[BranchingTool, ToolUse]:
        """Return the tool that has opened a branch, and its use, as far as this branch is concerned."""
        agent, dependencies = self._agent, self._agent.dependencies
        thread = await self._store.thread(start.thread_id)
        path, share = await self._store.path(start.id), share_of(start)
        if thread is None or share is None:
            raise ToolError(f"No worker works on a branch that begins with {start.id!r}.")
        tools: Mapping[str, AgentTool] = agent.tools
        tool, use = None, None
        for caller, node in pairwise(path.nodes):
            if node.kind == "branch" and (use := _use_of(caller, node)) is not None:
                around, tool = tools, tools.get(use.name)
                if isinstance(tool, BranchingTool):
                    tools = tool.tools_in(use, around)
        if use is None or not isinstance(tool, BranchingTool):
            raise ToolError(f"The tool that has opened the branch {start.id!r} is not available.")
        meter = Meter(share.of(dependencies.limits), partial(spent_in_branch, self._store, start))
        timeline = Timeline(dependencies, thread, meter)
        timeline.moves_head = False
        writer = LineWriter(timeline, BatchLine(path.nodes[-2:-1], path.results))
        return tool, ToolBatch(timeline, tools, writer, Continuation()).here(use)


def _left(progress: BranchProgress, start: Node) -> WorkLeft:
    if progress.is_over(start):
        return WorkLeft()
    line, at = progress.line(start), progress.path(start)[-1].id
    here = not progress.waits(start, here=True)
    if line is None or not line.unfinished:
        return WorkLeft(here, at=at)
    branches, until = tuple(progress.elsewhere(line)), progress.until(line)
    return WorkLeft(here, branches, until, at, at_tools=True)


def _use_of(caller: Node, start: Node) -> ToolUseBlock | None:
    """Return the tool use by which ``caller`` has opened a branch."""
    opened_by = start.data.get("tool_use_id")
    return next((use for use in caller.tool_uses if use.id == opened_by), None)

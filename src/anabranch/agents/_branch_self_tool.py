"""``branch_self``: the tool with which a model forks itself into branches and reads their answers.

Without the placeholder that each branch sees as the call's result, the model would fork again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from pydantic import JsonValue

from anabranch._aio import run_shielded
from anabranch.agents._agent_dependencies import Model
from anabranch.agents._agent_tools import AgentTool, Outcome, ToolUse, UsableTool, Waiting
from anabranch.agents._branch_progress import ALLOW_WORK, BEFORE, BranchOutcome, BranchProgress
from anabranch.agents._branch_runs import BranchPath, new_branches, run_branches
from anabranch.agents._branch_self_input import (
    SPEC,
    BranchSelfInput,
    EndedBranch,
    read_prompts,
    summary,
)
from anabranch.agents._recombination import JUDGES, BranchAnswer, Recombined, recombine
from anabranch.agents._turn import Turn
from anabranch.errors import StoreError
from anabranch.messages import ToolSpec
from anabranch.tree import Node, name_branches

PLACEHOLDER = "Branching In Progress..."


def BranchSelf(  # noqa: N802 - an author gives it to an agent as Folding() and RemoteTools()
    *, judge: Model | None = None, judges: int = JUDGES
) -> AgentTool:
    """Return the tool ``branch_self``, by which a model works on several prompts in branches.

    Args:
        judge: the model that merges, votes and judges; by default, the agent's own.
        judges: the number of votes for the recombiner ``llm_vote``.
    """
    return BranchSelfTool(judge, judges)


class BranchSelfTool(UsableTool):
    spec: ToolSpec = SPEC
    placeholder: str | None = PLACEHOLDER

    def __init__(self, judge: Model | None, judges: int) -> None:
        self._judge = judge
        self._judges = judges

    async def use(self, here: ToolUse) -> Outcome | Waiting:
        dependencies = here.timeline.dependencies
        progress = await here.branches()
        if starts := progress.opened(here.caller, here.block.id):
            fork = _Fork(here, read_prompts(here.block.input, len(starts)), starts)
            paths = fork.continued(progress)
        else:
            wanted = read_prompts(here.block.input, dependencies.limits.max_branches_per_call)
            await here.open_branches(len(wanted.prompts))
            # One write stores all branches, so that none is missing after a crash.
            starts = await dependencies.add(_starts(here, wanted))
            fork = _Fork(here, wanted, starts)
            paths = new_branches(here.path, starts)
        try:
            await fork.run(paths)
            if not await fork.has_ended():
                is_over = here.continuation.is_over and bool(paths)
                return await fork.interrupted() if is_over else Waiting()
            branches = await fork.branches()
            made = await self._recombined(here, fork.wanted, branches)
        except asyncio.CancelledError:
            # If the store fails now, the cancellation is raised all the same, and the pending
            # result says that the tool was interrupted.
            if not dependencies.suspension.begun:
                with suppress(StoreError):
                    await run_shielded(fork.record_interruption())
            raise
        return Outcome(summary(fork.wanted, branches, made))

    async def _recombined(
        self, here: ToolUse, wanted: BranchSelfInput, branches: Sequence[EndedBranch]
    ) -> Recombined:
        ask = partial(here.timeline.aside, model=self._judge, total=here.side_usage)
        answers = [BranchAnswer(branch.name, branch.prompt, branch.answer) for branch in branches]
        return await recombine(wanted.recombine, answers, ask, judges=self._judges)


@dataclass(frozen=True, slots=True)
class _Fork:
    here: ToolUse
    wanted: BranchSelfInput
    starts: Sequence[Node]
    outcomes: dict[str, BranchOutcome] = field(default_factory=dict[str, BranchOutcome])
    names: dict[str, str] = field(default_factory=dict[str, str])

    def continued(self, progress: BranchProgress) -> list[BranchPath]:
        ended = {s.id: outcome for s in self.starts if (outcome := progress.outcome(s))}
        self.outcomes.update(ended)
        going = [start for start in self.starts if start.id not in self.outcomes]
        how = self.here.continuation
        now = progress.going(going, how.within, is_asked=how.user is not None)
        if how.is_stopped:  # if a branch would continue, all end
            going = going if now else []
        elif self.wanted.parallel:  # otherwise they continue one after the other
            going = now
        return [BranchPath(progress.path(start)) for start in going]

    async def has_ended(self) -> bool:
        if going := [start for start in self.starts if self._outcome(start) is None]:
            progress = await self.here.branches()
            self.outcomes.update({s.id: found for s in going if (found := progress.outcome(s))})
        return all(self._outcome(start) for start in self.starts)

    async def run(self, paths: Iterable[BranchPath]) -> None:
        here = self.here
        await run_branches(
            Turn(here.timeline, here.tools, here.continuation.in_branches),
            paths,
            self.outcomes,
            work=self.wanted.allow_work,
            parallel=self.wanted.parallel,
            meanwhile=[self._try_to_name],
        )

    async def branches(self) -> list[EndedBranch]:
        if not self.names:
            await self._name()
        return [
            EndedBranch(self.names[start.id], prompt, self._outcome(start))
            for start, prompt in zip(self.starts, self.wanted.prompts, strict=True)
        ]

    def _outcome(self, start: Node) -> BranchOutcome | None:
        found = self.outcomes.get(start.id)
        return None if found is None or found.waits else found

    async def interrupted(self) -> Outcome:
        made = Recombined("", "Interrupted; nothing was recombined.")
        text = summary(self.wanted, await self.branches(), made)
        return Outcome(text, is_error=True)

    async def record_interruption(self) -> None:
        await self.here.record(await self.interrupted())

    async def _name(self) -> None:
        timeline = self.here.timeline
        tree = await timeline.dependencies.store.tree(timeline.thread.id)
        self.names.update(name_branches(tree.nodes).of)

    async def _try_to_name(self) -> None:
        # A failure must not end the branches; the look-up is tried again after their end.
        with suppress(StoreError):
            await self._name()


def _starts(here: ToolUse, wanted: BranchSelfInput) -> list[Node]:
    dependencies, thread_id = here.timeline.dependencies, here.timeline.thread.id
    data: dict[str, JsonValue] = {"tool_use_id": here.block.id, ALLOW_WORK: wanted.allow_work}
    starts: list[Node] = []
    for prompt in wanted.prompts:
        before = {} if wanted.parallel or not starts else {BEFORE: starts[-1].id}
        text, given = f"(self-prompt): {prompt}", {**data, **before}
        key = f"{here.block.id} {len(starts)}"
        start = dependencies.node(thread_id, here.caller.id, "branch", text, data=given, key=key)
        starts.append(start)
    return starts

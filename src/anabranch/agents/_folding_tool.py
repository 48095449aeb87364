"""``Folding``: an agent does a subtask in a branch, and returns with the conclusion."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import NoReturn

from anabranch._aio import run_shielded
from anabranch.agents._agent_tools import (
    ELSEWHERE,
    AgentTool,
    Outcome,
    ToolUse,
    UsableTool,
    Waiting,
    read_input,
)
from anabranch.agents._branch_progress import BRANCH_ID, BranchOutcome, BranchProgress
from anabranch.agents._branch_runs import BranchPath, new_branches, run_branches
from anabranch.agents._branch_self_tool import PLACEHOLDER
from anabranch.agents._folding_input import (
    CreateInput,
    FoldingTool,
    ReturnInput,
    StatusInput,
    done_last,
    last_return,
    seen_outside,
    so_far,
    spec_of,
    task_text,
    transcript_of,
)
from anabranch.agents._turn import Turn
from anabranch.agents._working_branch import BRANCH_RETURN, WorkingBranch
from anabranch.errors import StoreError, ToolError
from anabranch.folding import (
    ROOT,
    Branch,
    BranchNotActiveError,
    BranchRecord,
    BranchService,
    CreatedBranch,
    FoldingError,
    no_active_branch,
)
from anabranch.messages import ToolSpec
from anabranch.stores import open_branch_store
from anabranch.tree import SHOWN, Node


class Folding:
    """Gives an agent the tools ``branch_create``, ``branch_return`` and ``branch_status``.

    Pass a ``Folding`` to an :class:`~anabranch.agents.Agent` among its tools.

    Args:
        branches: the service that stores branches and counts their tokens; by default, a service in
            the memory of this process. Each thread is a session of the service; the agent's own
            limits bound a thread's tokens.
    """

    def __init__(self, branches: BranchService | None = None) -> None:
        self.branches: BranchService = branches or BranchService(open_branch_store("memory:"))
        self._tools: Sequence[AgentTool] = [
            kind(self.branches) for kind in (_Create, _Return, _Status)
        ]

    def offered_tools(self, taken: Collection[str]) -> Sequence[AgentTool]:
        """Return the tools, except for those whose names are in ``taken``."""
        return [tool for tool in self._tools if tool.name not in taken]

    async def tend(self) -> NoReturn:
        """Close each branch soon after its deadline; run until cancelled."""
        await self.branches.run()


class _Create(FoldingTool):
    placeholder: str | None = PLACEHOLDER

    def __init__(self, branches: BranchService) -> None:
        super().__init__(branches)
        settings = branches.settings
        self.spec = spec_of(
            "branch_create",
            "Do a subtask in a branch of this conversation: you see all of it there, and only the"
            " message with which you return is seen here. Use it for whatever needs many steps and"
            " has a short conclusion. Several calls at once are done side by side."
            f" A branch has {settings.default_budget} tokens and"
            f" {settings.default_timeout_seconds:g} s unless you ask for others, at most"
            f" {settings.max_budget} and {settings.max_timeout_seconds:g} s.",
            CreateInput,
        )

    async def use(self, here: ToolUse) -> Outcome | Waiting:
        wanted = read_input(CreateInput, here.block.input, self.name)
        tools = _chosen(here.tools, wanted.tools)
        progress = await here.branches()
        for start in progress.opened(here.caller, here.block.id):
            return await self._continued(here, tools, start, progress)
        await here.open_branches(1)
        created = await self._created(here, wanted)
        working = WorkingBranch(self.branches_of(here), created.branch)
        async with self._closing(here, working):
            [opened] = await here.timeline.dependencies.add([_start(here, created)])
            if opened.data[BRANCH_ID] == working.id:
                [path] = new_branches(here.path, [opened])
                return await self._worked(here, tools, working, path)
        await working.service.force(working.id, "another process has opened it")
        return await self.use(here)

    async def _created(self, here: ToolUse, wanted: CreateInput) -> CreatedBranch:
        within = here.timeline.branch_of_folding
        creating = partial(
            self.branches_of(here).create,
            wanted.description,
            wanted.prompt,
            budget=wanted.budget,
            inject_memories=wanted.inject_memories,
            timeout_seconds=wanted.timeout_seconds,
            parent_branch_id=ROOT if within is None else within.id,
            session_id=here.timeline.thread.id,
            is_metered=False,
            extract_memory=wanted.extract_memory,
        )
        return await (creating() if within is None else within.create(creating))

    async def _continued(
        self, here: ToolUse, tools: Mapping[str, UsableTool], start: Node, progress: BranchProgress
    ) -> Outcome | Waiting:
        branches = self.branches_of(here)
        branch = await branches.time_out(str(start.data[BRANCH_ID]))
        if not branch.is_open:
            return seen_outside(branch)
        how, working = here.continuation, WorkingBranch(branches, branch)
        if (ended := progress.outcome(start)) is not None:  # ended, not yet closed
            return seen_outside(await self._ended(here, working, ended))
        if not progress.going([start], how.within, is_asked=how.user is not None):
            return Waiting()
        async with self._closing(here, working):
            return await self._worked(here, tools, working, BranchPath(progress.path(start)))

    async def _worked(
        self,
        here: ToolUse,
        tools: Mapping[str, UsableTool],
        working: WorkingBranch,
        path: BranchPath,
    ) -> Outcome | Waiting:
        outcomes: dict[str, BranchOutcome] = {}
        turn = Turn(here.timeline, tools, here.continuation.in_branches)
        await run_branches(turn, [path], outcomes, work=True, parallel=False, working=working)
        [outcome] = outcomes.values()
        if not outcome.waits:
            return seen_outside(await self._ended(here, working, outcome))
        if here.continuation.is_over:
            return seen_outside(await working.service.force(working.id, "its questions were left"))
        return Waiting()

    @asynccontextmanager
    async def _closing(self, here: ToolUse, working: WorkingBranch) -> AsyncGenerator[None]:
        try:
            yield
        except ELSEWHERE:
            raise
        except BaseException as error:
            interrupted = isinstance(error, asyncio.CancelledError)
            reason = "interrupted" if interrupted else "it has failed"
            if not (interrupted and here.timeline.dependencies.suspension.begun):
                with suppress(StoreError, FoldingError):  # the error itself is about to be raised
                    await run_shielded(working.service.force(working.id, reason))
            raise

    async def _ended(self, here: ToolUse, working: WorkingBranch, outcome: BranchOutcome) -> Branch:
        branches = working.service
        ended_at = await here.timeline.dependencies.store.path(outcome.end.id)
        done = transcript_of(ended_at, outcome.start)
        if working.returned is None and outcome.error is None and outcome.text.strip():
            said = outcome.text.strip()[: branches.settings.max_message_length]
            with suppress(BranchNotActiveError):  # closed elsewhere, with its partial result
                ended = branches.complete(said, branch_id=working.id, tokens=0, transcript=done)
                return (await ended).branch
        last = last_return(outcome.end)
        partial = so_far(outcome, last)
        if partial is None and working.exhausted:
            partial = done_last(done)
        branch = await branches.time_out(working.id, partial, transcript=done)
        if not branch.is_open:
            return branch
        reason = working.exhausted or outcome.error or "it has returned nothing"
        learns = last is not None and last.extract_memory
        return await branches.force(
            working.id, reason, partial, extract_memory=learns, transcript=done
        )


def _chosen(
    tools: Mapping[str, UsableTool], names: Sequence[str] | None
) -> Mapping[str, UsableTool]:
    if names is None:
        return tools
    if unknown := [name for name in names if name not in tools]:
        known = ", ".join(sorted(tools))
        raise ToolError(
            f"branch_create was not run: there is no tool {unknown[0]!r}. Tools: {known}."
        )
    own = {name for name, each in tools.items() if isinstance(each, FoldingTool)}
    return {name: each for name, each in tools.items() if name in own or name in names}


def _start(here: ToolUse, created: CreatedBranch) -> Node:
    return here.timeline.dependencies.node(
        here.timeline.thread.id,
        here.caller.id,
        "branch",
        task_text(created.branch, created.injected),
        data={
            "tool_use_id": here.block.id,
            BRANCH_ID: created.branch.id,
            SHOWN: created.branch.description,
        },
        key=here.block.id,
    )


class _Return(FoldingTool):
    spec: ToolSpec = spec_of(
        BRANCH_RETURN,
        "Return from the branch that branch_create has opened. Only the message goes back, so put"
        " everything into it that is needed later.",
        ReturnInput,
    )

    async def use(self, here: ToolUse) -> Outcome:
        wanted = read_input(ReturnInput, here.block.input, self.name)
        working = here.timeline.branch_of_folding
        if working is None or working.is_fork:
            raise no_active_branch(here.timeline.thread.id)
        start = next(node for node in here.path.nodes if node.data.get(BRANCH_ID) == working.id)
        returned = await self.branches_of(here).complete(
            wanted.message,
            branch_id=working.id,
            extract_memory=wanted.extract_memory,
            transcript=transcript_of(here.path, start),
            tokens=0,
        )
        working.returned = returned.branch.result
        return Outcome("Returned.")


class _Status(FoldingTool):
    spec: ToolSpec = spec_of(
        "branch_status",
        "Look at a branch: its status, what it has used of its budget, and its result.",
        StatusInput,
    )

    async def use(self, here: ToolUse) -> Outcome:
        wanted = read_input(StatusInput, here.block.input, self.name)
        working, thread_id = here.timeline.branch_of_folding, here.timeline.thread.id
        own = None if working is None else working.id
        found = await self.branches_of(here).status(
            branch_id=wanted.branch_id or own, session_id=thread_id
        )
        record = BranchRecord.of(found) if found else BranchRecord(session_id=thread_id)
        return Outcome(json.dumps(record.model_dump(mode="json"), ensure_ascii=False))

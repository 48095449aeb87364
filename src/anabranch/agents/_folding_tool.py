"""``Folding``: an agent does a subtask in a branch, and returns with the conclusion.

From ``branch_create`` to ``branch_return`` the model works on the branch's path, which begins with the
conversation so far. The path that called ``branch_create`` has the call and, as its result, the
returned message; the nodes of the branch stay in the tree. Several calls in one reply open several
branches at the same time.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import NoReturn

from anabranch.agents._agent_tools import AgentTool, Outcome, ToolUse, read_input
from anabranch.agents._branch_progress import BRANCH_ID
from anabranch.agents._branch_states import transcript_of
from anabranch.agents._folding_create import BranchCreate
from anabranch.agents._folding_input import (
    FoldingTool,
    ReturnInput,
    StatusInput,
    spec_of,
)
from anabranch.agents._working_branch import BRANCH_RETURN, WorkingBranch
from anabranch.folding import (
    BranchRecord,
    BranchService,
    no_active_branch,
)
from anabranch.messages import ToolSpec
from anabranch.stores import open_branch_store


class Folding:
    """The tools ``branch_create``, ``branch_return`` and ``branch_status`` of an agent.

    Pass it to an :class:`~anabranch.agents.Agent` among its tools.

    Args:
        branches: the service that accounts for branches; by default, one in the memory of this process.
            The sessions of the service are threads, whose tokens the agent's own limits bound.
    """

    def __init__(self, branches: BranchService | None = None) -> None:
        self.branches: BranchService = branches or BranchService(open_branch_store("memory:"))
        self._tools: Sequence[AgentTool] = [
            kind(self.branches) for kind in (BranchCreate, _Return, _Status)
        ]

    def offered_tools(self, taken: Collection[str]) -> Sequence[AgentTool]:
        """Return the three tools, without those whose names are ``taken``."""
        return [tool for tool in self._tools if tool.name not in taken]

    async def tend(self) -> NoReturn:
        """Until cancelled, close each branch soon after its time is over."""
        await self.branches.run()


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
        returned = await self.branches_of(here).complete(
            wanted.message,
            branch_id=working.id,
            extract_memory=wanted.extract_memory,
            transcript=_done_in(here, working),
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


def _done_in(here: ToolUse, working: WorkingBranch) -> str:
    start = next(node for node in here.path.nodes if node.data.get(BRANCH_ID) == working.id)
    return transcript_of(here.path, start)

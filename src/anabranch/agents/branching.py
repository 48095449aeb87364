"""``branch_self``: a model forks itself, and gets back what its branches have found.

Owns the tool and what the model reads of it. Each branch is a child of the node that called the
tool; the results of that node's tools are told in all of them alike: the placeholder until all is
done, the summary from the next message on. Showing the call, with a placeholder for its result,
is what keeps a branch from branching all over again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from anabranch.agents.branch_input import SPEC, BranchInput, read_input
from anabranch.agents.branches import Grown, grow
from anabranch.agents.events import NodeAdded
from anabranch.agents.limits import TurnLimitError
from anabranch.agents.phase import ToolUse
from anabranch.agents.ports import Model
from anabranch.agents.recombining import JUDGES, Answer, Recombined, recombine
from anabranch.agents.tools import Outcome
from anabranch.call import to_the_end
from anabranch.errors import ToolError
from anabranch.messages import ToolSpec
from anabranch.tree import Node
from anabranch.tree.naming import name_branches

__all__ = ["PLACEHOLDER", "BranchSelf"]

PLACEHOLDER = "Branching In Progress..."
SELF_PROMPT = "(self-prompt): "
SHOWN = 200
"""Characters of an answer in the list, where the whole of it is below."""


class BranchSelf:
    """The tool with which a model forks itself.

    Args:
        judge: who merges, votes and judges; the agent's own model by default.
        judges: how many votes ``llm_vote`` takes.
    """

    spec: ToolSpec = SPEC
    placeholder: str | None = PLACEHOLDER

    def __init__(self, *, judge: Model | None = None, judges: int = JUDGES) -> None:
        self._judge = judge
        self._judges = judges

    @property
    def name(self) -> str:
        """``branch_self``."""
        return self.spec.name

    async def use(self, here: ToolUse) -> Outcome:
        """Open the branches, let them grow, and tell what has become of them.

        Raises:
            ToolError: the model has called it wrongly; it is told how to do it rightly.
        """
        path = (await here.turn.agent.store.path(here.caller.id)).nodes
        meant = _checked(here, sum(node.kind == "branch" for node in path))
        branches = await _open(here, meant)
        ends: dict[str, Grown] = {}
        starts = [branch.start for branch in branches]
        work, parallel = meant.allow_work, meant.parallel
        try:
            await grow(here.turn, starts, ends, work=work, parallel=parallel)
            made = await self._recombined(here, meant, branches, ends)
        except asyncio.CancelledError:
            made = Recombined("", "Interrupted; nothing was recombined.")
            told = Outcome(_summary(meant, branches, ends, made), is_error=True)
            await to_the_end(here.keep(told))
            raise
        return Outcome(_summary(meant, branches, ends, made))

    async def _recombined(
        self,
        here: ToolUse,
        meant: BranchInput,
        branches: Sequence[_Branch],
        ends: Mapping[str, Grown],
    ) -> Recombined:
        answers = [
            Answer(branch.name, branch.prompt, ends[branch.start.id].text) for branch in branches
        ]
        return await recombine(
            meant.recombine,
            answers,
            lambda prompt: here.turn.aside(prompt, self._judge),
            judges=self._judges,
        )


@dataclass(frozen=True, slots=True)
class _Branch:
    """A branch that was opened: what it is called, what it is to do, and where it begins."""

    name: str
    prompt: str
    start: Node

    def told(self, end: Grown | None, most: int | None) -> str:
        """Return what has become of it; of a long answer, the first ``most`` characters."""
        if end is None:
            return "Interrupted before it was done."
        if end.error is not None:
            return f"Failed: {end.error}"
        wanted = ", ".join(use.name for use in end.end.tool_uses)
        unused = f"(It called {wanted}, which was not run: allow_work is false.)" if wanted else ""
        text = end.text.strip()
        if most is not None and len(text) > most:
            text = f"{text[:most].rstrip()}…"
        return " ".join(filter(None, [text, unused])) or "(It has said nothing.)"


def _checked(here: ToolUse, depth: int) -> BranchInput:
    limits = here.turn.agent.limits
    if depth >= limits.depth:
        raise ToolError(
            f"branch_self was not run: this is a branch at depth {depth}, and branches may be"
            f" nested {limits.depth} deep. Do the task here, without branching."
        )
    meant = read_input(here.use.input, limits.branches)
    try:
        here.turn.meter.open(len(meant.prompts))
    except TurnLimitError as error:
        raise ToolError(
            f"branch_self was not run: {len(meant.prompts)} branches more are too many, as"
            f" {error.used:g} of {error.limit:g} are open already. Do the task here, without"
            " branching."
        ) from None
    return meant


async def _open(here: ToolUse, meant: BranchInput) -> list[_Branch]:
    """Add all branches at once: whatever happens, there are as many as prompts, in their order."""
    turn, thread_id = here.turn, here.turn.thread.id
    data: dict[str, JsonValue] = {"tool_use_id": here.use.id}
    starts = [
        turn.agent.node(thread_id, here.caller.id, "branch", f"{SELF_PROMPT}{prompt}", data=data)
        for prompt in meant.prompts
    ]
    await turn.agent.store.append(starts)
    for start in starts:
        await here.tell(NodeAdded(start))
    # All of the thread has to be read, since a branch is called by its place among all others.
    names = name_branches((await turn.agent.store.tree(thread_id)).nodes).of
    return [
        _Branch(names[start.id], prompt, start)
        for start, prompt in zip(starts, meant.prompts, strict=True)
    ]


def _summary(
    meant: BranchInput, branches: Sequence[_Branch], ends: Mapping[str, Grown], made: Recombined
) -> str:
    done = sum(end.error is None for end in ends.values())
    order = "parallel" if meant.parallel else "sequential"
    mode = "iterative" if meant.allow_work else "single response"
    most = None if meant.recombine == "none" else SHOWN
    parts = [f"{done}/{len(branches)} branches completed ({order}, {mode})."]
    for branch in branches:
        told = branch.told(ends.get(branch.start.id), most)
        parts.append(f"{branch.name} ({branch.prompt}):\n{told}")
    parts += [made.note, made.text]
    return "\n\n".join(filter(None, parts))

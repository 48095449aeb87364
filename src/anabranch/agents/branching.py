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
from anabranch.tree import Node, TreeStore

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
        branches = await _open(here, meant, path)
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


async def _open(here: ToolUse, meant: BranchInput, path: Sequence[Node]) -> list[_Branch]:
    """Add all branches at once: whatever happens, there are as many as prompts, in their order."""
    turn, phase = here.turn, here.phase
    scope, number = await _scope(turn.agent.store, path)
    branches: list[_Branch] = []
    for prompt in meant.prompts:
        phase.branches += 1
        place = number + phase.branches
        data: dict[str, JsonValue] = {"tool_use_id": here.use.id, "number": place}
        content = f"{SELF_PROMPT}{prompt}"
        node = turn.agent.node(turn.thread.id, here.caller.id, "branch", content, data=data)
        branches.append(_Branch(f"{scope}{place}", prompt, node))
    await turn.agent.store.append([branch.start for branch in branches])
    for branch in branches:
        await here.tell(NodeAdded(branch.start))
    return branches


async def _scope(store: TreeStore, path: Sequence[Node]) -> tuple[str, int]:
    """Return how names of branches at the end of ``path`` begin, and how many are taken.

    Branches are counted from the beginning of the branch that encloses them: ``b1`` and ``b2``
    are opened by one call, ``b3`` by a later one; ``b1.1`` in the first of them.
    """
    enclosing = [at for at, node in enumerate(path) if node.kind == "branch"]
    numbers = [str(path[at].data.get("number", 1)) for at in enclosing]
    inside = path[enclosing[-1] + 1 : -1] if enclosing else path[:-1]
    callers = [node for node in inside if any(use.name == SPEC.name for use in node.tool_uses)]
    followers = [await store.children(node.id) for node in callers]
    taken = sum(node.kind == "branch" for nodes in followers for node in nodes)
    return "b" + "".join(f"{number}." for number in numbers), taken


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

"""``branch_self``: a model forks itself, and gets back what its branches have found.

Owns the tool and what the model reads of it. Each branch is a child of the node that called the
tool; the results of that node's tools are told in all of them alike: the placeholder until all is
done, the summary from the next message on. Showing the call, with a placeholder for its result,
is what keeps a branch from branching all over again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from pydantic import JsonValue

from anabranch._engine import to_the_end
from anabranch.agents._agent_tools import Outcome
from anabranch.agents._branch_input import SPEC, BranchInput, read_input
from anabranch.agents._branches import Grown, grow
from anabranch.agents._events import NodeAdded
from anabranch.agents._ports import Model
from anabranch.agents._recombining import JUDGES, Answer, Recombined, recombine
from anabranch.agents._tool_batch import ToolUse
from anabranch.agents._turn import Told
from anabranch.agents._turn_limits import TurnLimitError
from anabranch.errors import StoreError, ToolError
from anabranch.messages import ToolSpec
from anabranch.tree import Node, name_branches, project_each

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
        path = await here.turn.agent.store.path(here.caller.id)
        meant = _checked(here, sum(node.kind == "branch" for node in path.nodes))
        fork = _Fork(here, meant, await _open(here, meant))
        try:
            await fork.grow(project_each(path.nodes, fork.starts, path.results))
            branches = await fork.branches()
            made = await self._recombined(here, meant, branches)
        except asyncio.CancelledError:
            # If the store refuses: the interruption counts, and what is held back tells of it.
            with suppress(StoreError):
                await to_the_end(fork.keep_interrupted())
            raise
        return Outcome(_summary(meant, branches, made))

    async def _recombined(
        self, here: ToolUse, meant: BranchInput, branches: Sequence[_Branch]
    ) -> Recombined:
        answers = [
            Answer(branch.name, branch.prompt, "" if branch.end is None else branch.end.text)
            for branch in branches
        ]
        return await recombine(
            meant.recombine,
            answers,
            lambda prompt: here.aside(prompt, self._judge),
            judges=self._judges,
        )


@dataclass(frozen=True, slots=True)
class _Fork:
    """The branches of one use: where they begin, and what has become of them so far."""

    here: ToolUse
    meant: BranchInput
    starts: Sequence[Node]
    ends: dict[str, Grown] = field(default_factory=dict[str, Grown])
    names: dict[str, str] = field(default_factory=dict[str, str])

    async def grow(self, told: Iterable[Told]) -> None:
        """Let all branches grow, and learn meanwhile what they are called."""
        await grow(
            self.here.turn,
            zip(self.starts, told, strict=True),
            self.ends,
            work=self.meant.allow_work,
            parallel=self.meant.parallel,
            meanwhile=[self._try_to_name],
        )

    async def branches(self) -> list[_Branch]:
        """Return the branches, by their names."""
        if not self.names:
            await self._name()
        return [
            _Branch(self.names[start.id], prompt, self.ends.get(start.id))
            for start, prompt in zip(self.starts, self.meant.prompts, strict=True)
        ]

    async def keep_interrupted(self) -> None:
        """Keep what is done."""
        made = Recombined("", "Interrupted; nothing was recombined.")
        told = _summary(self.meant, await self.branches(), made)
        await self.here.keep(Outcome(told, is_error=True))

    async def _name(self) -> None:
        """Read all of the thread, since a branch is called by its place among all others.

        Names, once given, stay: it does not matter when this is done.
        """
        turn = self.here.turn
        self.names.update(name_branches((await turn.agent.store.tree(turn.thread.id)).nodes).of)

    async def _try_to_name(self) -> None:
        # It can be done later, and must not stop what is growing.
        with suppress(StoreError):
            await self._name()


@dataclass(frozen=True, slots=True)
class _Branch:
    """A branch: what it is called, what it is to do, and how it has ended, if it has."""

    name: str
    prompt: str
    end: Grown | None

    def told(self, most: int | None) -> str:
        """Return what has become of it; of a long answer, the first ``most`` characters."""
        end = self.end
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


async def _open(here: ToolUse, meant: BranchInput) -> list[Node]:
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
    return starts


def _summary(meant: BranchInput, branches: Sequence[_Branch], made: Recombined) -> str:
    done = sum(branch.end is not None and branch.end.error is None for branch in branches)
    order = "parallel" if meant.parallel else "sequential"
    mode = "iterative" if meant.allow_work else "single response"
    most = None if meant.recombine == "none" else SHOWN
    parts = [f"{done}/{len(branches)} branches completed ({order}, {mode})."]
    parts += [f"{branch.name} ({branch.prompt}):\n{branch.told(most)}" for branch in branches]
    parts += [made.note, made.text]
    return "\n\n".join(filter(None, parts))

"""``branch_self``: the tool with which a model forks itself into branches and reads their answers.

Each branch is a child of the node that called the tool. While the branches run, each of them sees
that call with a placeholder as its result: a model that did not see it would branch all over again.
From the next message on, all of them see the summary.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from pydantic import JsonValue

from anabranch._shielded import run_shielded
from anabranch.agents._agent_dependencies import person_in_branches
from anabranch.agents._agent_tools import Outcome, ToolUse
from anabranch.agents._branch_runs import BranchOutcome, run_branches
from anabranch.agents._branch_self_input import SPEC, BranchSelfInput, read_input
from anabranch.agents._events import NodeAdded
from anabranch.agents._ports import Model
from anabranch.agents._recombination import JUDGES, BranchAnswer, Recombined, recombine
from anabranch.agents._timeline import RequestMessages
from anabranch.agents._turn import Turn
from anabranch.agents._turn_limits import TurnLimitError
from anabranch.errors import StoreError, ToolError
from anabranch.messages import ToolSpec
from anabranch.tree import Node, name_branches, project_each

__all__ = ["PLACEHOLDER", "BranchSelf"]

PLACEHOLDER = "Branching In Progress..."
SELF_PROMPT = "(self-prompt): "
EXCERPT = 200
"""Characters of each answer in a summary that has a recombined text as well."""


class BranchSelf:
    """The tool ``branch_self``.

    Args:
        judge: the model that merges, votes and judges; by default, the agent's own.
        judges: the number of votes that ``llm_vote`` takes.
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
        """Open the branches, run them, and return a summary of how they have ended.

        Raises:
            ToolError: the input is invalid, or a limit allows no such branches; none is opened.
        """
        path = await here.timeline.dependencies.store.path(here.caller.id)
        wanted = _checked_input(here, sum(node.kind == "branch" for node in path.nodes))
        fork = _Fork(here, wanted, await _open(here, wanted))
        try:
            await fork.run(project_each(path.nodes, fork.starts, path.results))
            branches = await fork.branches()
            made = await self._recombined(here, wanted, branches)
        except asyncio.CancelledError:
            # If the store fails now, the cancellation is raised all the same, and the pending
            # result says that the tool was interrupted.
            with suppress(StoreError):
                await run_shielded(fork.record_interruption())
            raise
        return Outcome(_summary(wanted, branches, made))

    async def _recombined(
        self, here: ToolUse, wanted: BranchSelfInput, branches: Sequence[_Branch]
    ) -> Recombined:
        answers = [BranchAnswer(branch.name, branch.prompt, branch.answer) for branch in branches]
        return await recombine(
            wanted.recombine,
            answers,
            lambda prompt: here.aside(prompt, self._judge),
            judges=self._judges,
        )


@dataclass(frozen=True, slots=True)
class _Fork:
    """The branches of one tool use: their first nodes, names, and outcomes so far."""

    here: ToolUse
    wanted: BranchSelfInput
    starts: Sequence[Node]
    outcomes: dict[str, BranchOutcome] = field(default_factory=dict[str, BranchOutcome])
    names: dict[str, str] = field(default_factory=dict[str, str])

    async def run(self, messages: Iterable[RequestMessages]) -> None:
        """Run all branches, and look up their names meanwhile."""
        await run_branches(
            Turn(
                self.here.timeline,
                self.here.tools,
                person_in_branches(self.here.timeline.dependencies),
            ),
            zip(self.starts, messages, strict=True),
            self.outcomes,
            work=self.wanted.allow_work,
            parallel=self.wanted.parallel,
            meanwhile=[self._try_to_name],
        )

    async def branches(self) -> list[_Branch]:
        """Return the branches with their names."""
        if not self.names:
            await self._name()
        return [
            _Branch(self.names[start.id], prompt, self.outcomes.get(start.id))
            for start, prompt in zip(self.starts, self.wanted.prompts, strict=True)
        ]

    async def record_interruption(self) -> None:
        """Store a summary of the branches that have ended."""
        made = Recombined("", "Interrupted; nothing was recombined.")
        summary = _summary(self.wanted, await self.branches(), made)
        await self.here.record(Outcome(summary, is_error=True))

    async def _name(self) -> None:
        """Look up the names, which depend on all branches of the thread.

        The name of a branch never changes, so it does not matter when this is done.
        """
        timeline = self.here.timeline
        tree = await timeline.dependencies.store.tree(timeline.thread.id)
        self.names.update(name_branches(tree.nodes).of)

    async def _try_to_name(self) -> None:
        # It is tried again when the branches have ended, and must not end them.
        with suppress(StoreError):
            await self._name()


@dataclass(frozen=True, slots=True)
class _Branch:
    """A branch with its name, its prompt, and its outcome, ``None`` if it has not ended."""

    name: str
    prompt: str
    outcome: BranchOutcome | None

    @property
    def answer(self) -> str:
        """What it has said, marked as incomplete if it has failed; empty if that is nothing."""
        outcome = self.outcome
        if outcome is None:
            return ""
        partial = outcome.partial.strip()
        return f"(incomplete, as this branch failed) {partial}" if partial else outcome.text

    def report(self, max_length: int | None) -> str:
        """Return how it has ended, with at most ``max_length`` characters of its answer."""
        outcome = self.outcome
        if outcome is None:
            return "Interrupted before it was done."
        if outcome.error is not None:
            partial = _excerpt(outcome.partial.strip(), max_length)
            return f"Failed: {outcome.error}" + (f"\nBefore that: {partial}" if partial else "")
        calls = ", ".join(use.name for use in outcome.end.tool_uses)
        unused = f"(It called {calls}, which was not run: allow_work is false.)" if calls else ""
        text = _excerpt(outcome.text.strip(), max_length)
        return " ".join(filter(None, [text, unused])) or "(It has said nothing.)"


def _excerpt(text: str, max_length: int | None) -> str:
    if max_length is None or len(text) <= max_length:
        return text
    return f"{text[:max_length].rstrip()}…"


def _checked_input(here: ToolUse, depth: int) -> BranchSelfInput:
    limits = here.timeline.dependencies.limits
    if depth >= limits.max_depth:
        raise ToolError(
            f"branch_self was not run: this is a branch at depth {depth}, and branches may be"
            f" nested {limits.max_depth} deep. Do the task here, without branching."
        )
    wanted = read_input(here.block.input, limits.max_branches_per_call)
    try:
        here.timeline.meter.open_branches(len(wanted.prompts))
    except TurnLimitError as error:
        raise ToolError(
            f"branch_self was not run: {len(wanted.prompts)} branches more are too many, as"
            f" {error.used:g} of {error.limit:g} are open already. Do the task here, without"
            " branching."
        ) from None
    return wanted


async def _open(here: ToolUse, wanted: BranchSelfInput) -> list[Node]:
    """Add the first nodes of all branches in one write, so that none is missing after a crash."""
    dependencies, thread_id = here.timeline.dependencies, here.timeline.thread.id
    data: dict[str, JsonValue] = {"tool_use_id": here.block.id}
    starts = [
        dependencies.node(thread_id, here.caller.id, "branch", f"{SELF_PROMPT}{prompt}", data=data)
        for prompt in wanted.prompts
    ]
    await dependencies.store.append(starts)
    for start in starts:
        await here.emit(NodeAdded(start))
    return starts


def _summary(wanted: BranchSelfInput, branches: Sequence[_Branch], made: Recombined) -> str:
    done = sum(branch.outcome is not None and branch.outcome.error is None for branch in branches)
    order = "parallel" if wanted.parallel else "sequential"
    mode = "iterative" if wanted.allow_work else "single response"
    max_length = None if wanted.recombine == "none" else EXCERPT
    parts = [f"{done}/{len(branches)} branches completed ({order}, {mode})."]
    parts += [f"{each.name} ({each.prompt}):\n{each.report(max_length)}" for each in branches]
    parts += [made.note, made.text]
    return "\n\n".join(filter(None, parts))

"""The branches of a thread as people are shown them: description, state and conclusion of each.

All of it is read from the tree. Whether somebody works on a branch is not in there: one that could
go on by itself is ``running``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from anabranch.agents._batch_line import BatchLine
from anabranch.agents._branch_progress import BRANCH_ID, BranchProgress
from anabranch.messages import TextBlock, text_of
from anabranch.tree import Node, Path, Tree
from anabranch.tree._person_view import is_said, open_questions

State: TypeAlias = Literal["running", "waits for you", "done", "failed", "stopped"]
"""How a branch is. One that is stopped was interrupted before it had ended."""

WAITS: State = "waits for you"


@dataclass(frozen=True, slots=True)
class ShownBranch:
    """A branch.

    Attributes:
        description: what it is about.
        state: how it is; it waits if a tool in it, or in a branch inside of it, has asked.
        conclusion: what it has returned; ``None`` before.
    """

    description: str
    state: State
    conclusion: str | None = None


def branch_around(path: Path) -> Node | None:
    """Return the first node of the innermost branch that a path ends in; ``None`` outside of any.

    What a person says below a branch is a conversation of its own.
    """
    for node in reversed(path.nodes):
        if node.kind == "branch" or is_said(node):
            return node if node.kind == "branch" else None
    return None


def branches_in(tree: Tree) -> Mapping[str, ShownBranch]:
    """Return the branches of a thread, by the ids of their first nodes."""
    progress = BranchProgress(tree.nodes, tree.results)
    known = {node.id: node for node in tree.nodes}
    waiting: set[str] = set()
    for asked in open_questions(tree):
        at: Node | None = asked
        while at is not None and not is_said(at):
            waiting.add(at.id)
            at = known.get(at.parent_id or "")
    starts = (node for node in tree.nodes if node.kind == "branch")
    return {
        start.id: ShownBranch(start.shown, WAITS)
        if start.id in waiting
        else _ended(start, BatchLine([known[start.parent_id or ""]], tree.results), progress)
        for start in starts
    }


def _ended(start: Node, caller: BatchLine, progress: BranchProgress) -> ShownBranch:
    """Return a branch that does not wait; one of folding has ended when its tool has returned."""
    use_id = str(start.data.get("tool_use_id"))
    result = caller.result(use_id) if caller.has_returned(use_id) else None
    if BRANCH_ID in start.data and result is not None:
        parts = result.content if result.pending is None else result.pending
        text = text_of(part for part in parts if isinstance(part, TextBlock))
        return ShownBranch(start.shown, "failed" if result.is_error else "done", text)
    outcome = progress.outcome(start)
    if outcome is None:
        return ShownBranch(start.shown, "running" if result is None else "stopped")
    if outcome.error is not None:
        return ShownBranch(start.shown, "failed", outcome.end.shown)
    return ShownBranch(start.shown, "done", outcome.text)

"""The end of a path, read at one moment: tools that can continue, and open questions."""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from dataclasses import dataclass

from anabranch.agents._batch_line import BatchLine
from anabranch.agents._branch_progress import BranchProgress
from anabranch.tree import Node, Surroundings, TreeStore


@dataclass(frozen=True, slots=True)
class PathEnd:
    """The end of a path.

    Attributes:
        around: the path, with the nodes that follow it.
        can_continue: whether a tool, or a branch of one, can continue now, without another answer.
        is_unread: whether all tools have returned, and the model has not read their results yet.
        questions: the open questions, in the order of the line; then the questions in branches.
        until: the time at which the first of their tools continues without an answer; for most
            tools, never.
        is_cut_off: whether a tool has neither returned nor asked: the tool sleeps, never began, or
            has branches.
    """

    around: Surroundings
    can_continue: bool = False
    is_unread: bool = False
    questions: Sequence[Node] = ()
    until: float = math.inf
    is_cut_off: bool = False

    @classmethod
    async def read(
        cls,
        store: TreeStore,
        around: Surroundings,
        asleep: Container[tuple[str, str]] = (),
        now: float = 0.0,
    ) -> PathEnd:
        """Return the end of a path, with the branches below it.

        The tool uses ``asleep``, each after its caller, wait for a time, and cannot continue. A
        question whose time is over ``now`` holds up no tool.
        """
        line = BatchLine.read(around)
        if line is None:
            return cls(around)
        below = around.below[line.caller.id]
        progress = await BranchProgress.below(store, line.caller, below, asleep, now)
        can_continue = progress.can_continue(line)
        questions, until = progress.questions(line), progress.until(line)
        cut_off = any(line.round_id(use.id) is None for use in line.unfinished)
        return cls(around, can_continue, not line.unfinished, questions, until, cut_off)

"""The end of a path as it was read at one moment: whether tools can go on there, and what others ask."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

from anabranch.agents._batch_line import BatchLine
from anabranch.agents._branch_progress import BranchProgress
from anabranch.tree import Node, Surroundings, TreeStore

__all__ = ["PathEnd"]


@dataclass(frozen=True, slots=True)
class PathEnd:
    """The end of a path.

    Attributes:
        around: the path, with what follows there.
        can_go_on: whether a tool, or a branch of one, can go on now, without another answer.
        questions: what waits for an answer, in the order of the line; then that in branches.
    """

    around: Surroundings
    can_go_on: bool = False
    questions: Sequence[Node] = ()

    @classmethod
    async def read(
        cls, store: TreeStore, around: Surroundings, asleep: Container[tuple[str, str]] = ()
    ) -> PathEnd:
        """Return the end of a path; branches are read, if there are any.

        The tool uses ``asleep``, each after its caller, wait for a time, and cannot go on.
        """
        line = BatchLine.read(around)
        if line is None:
            return cls(around)
        below = around.below[line.caller.id]
        progress = await BranchProgress.below(store, line.caller, below, asleep)
        return cls(around, progress.can_go_on(line), progress.questions(line))

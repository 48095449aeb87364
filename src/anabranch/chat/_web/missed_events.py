"""The events that a run's log lacks, because a process died after storing their nodes in the tree.

This module finds nodes of branches and results of tools. A continuing run reports the main path.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ag_ui.core import ToolCallResultEvent

from anabranch.agents import (
    BranchEnded,
    BranchProgress,
    BranchResumed,
    Event,
    NodeAdded,
    ToolEnded,
    ToolStarted,
    is_in_front_end,
)
from anabranch.chat._web.event_mapping import shown_in
from anabranch.messages import ToolUseBlock, text_of
from anabranch.tree import Node, Result, Tree, is_placeholder

RESULT = b'{"type":"TOOL_CALL_RESULT"'


def missed_events(tree: Tree, begins_at: str, log: Sequence[bytes]) -> Iterator[Event]:
    """Yield the events that a log lacks, branch by branch, outer branches first.

    Args:
        tree: the thread of the log.
        begins_at: the node below which events may be missing.
        log: the events of the thread.
    """
    missed = _Missed(tree, begins_at, log)
    yield from missed.in_branch(None, ())
    progress = BranchProgress(tree.nodes, tree.results)
    for start in [node for node in missed.nodes if node.kind == "branch"]:
        inside = [node for node in missed.nodes if missed.branch_of[node.id] == start.id]
        if found := list(missed.in_branch(start.id, inside)):
            yield BranchResumed(tuple(inside))
            yield from found
            if (outcome := progress.outcome(start)) is not None:
                yield BranchEnded(outcome)


class _Missed:
    """The nodes below one node, parents before children, and the results that a log lacks.

    Attributes:
        nodes: the node, and all nodes below it.
        branch_of: the first node of each node's branch, ``None`` on the main path.
    """

    def __init__(self, tree: Tree, begins_at: str, log: Sequence[bytes]) -> None:
        self.nodes: list[Node] = []
        self.branch_of: dict[str, str | None] = {}
        self._by_id: dict[str, Node] = {}
        self._shown = shown_in(log)
        for node in tree.nodes:
            if node.id == begins_at or node.parent_id in self.branch_of:
                above = self.branch_of.get(str(node.parent_id))
                self.branch_of[node.id] = node.id if node.kind == "branch" else above
                self.nodes.append(node)
                self._by_id[node.id] = node
        self._results = list(self._unreported(tree.results.values(), log))

    def in_branch(self, branch: str | None, inside: Sequence[Node]) -> Iterator[Event]:
        """Yield the missing events of one branch, whose nodes are ``inside``."""
        yield from (NodeAdded(node) for node in inside if node.id not in self._shown)
        for caller, use, result in self._results:
            if self.branch_of[result.node_id] == branch:
                yield ToolStarted(caller, use)
                yield ToolEnded(use, result)

    def _unreported(
        self, results: Iterable[Result], log: Iterable[bytes]
    ) -> Iterator[tuple[str, ToolUseBlock, Result]]:
        """Yield the tools' results that the log lacks, each with its call."""
        events = (
            ToolCallResultEvent.model_validate_json(each) for each in log if each.startswith(RESULT)
        )
        reported = {(each.tool_call_id, each.content) for each in events}
        in_front_end = {
            str(node.data.get("tool_use_id")) for node in self.nodes if is_in_front_end(node)
        }
        for result in results:
            name, text = result.tool_use_id, text_of(result.pending or result.content)
            is_known = (name, text) in reported or name in in_front_end
            if result.node_id in self._by_id and not is_known and not is_placeholder(result):
                caller = self._by_id[result.node_id]
                while not (uses := [each for each in caller.tool_uses if each.id == name]):
                    if (above := self._by_id.get(str(caller.parent_id))) is None:
                        break
                    caller = above
                for use in uses:
                    yield caller.id, use, result

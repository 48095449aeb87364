"""The state of each branch for display; ``running`` includes branches that no process works on."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from anabranch.agents._batch_line import BatchLine
from anabranch.agents._branch_progress import BRANCH_ID, BranchProgress
from anabranch.messages import Block, Message, TextBlock, ToolResultBlock, ToolUseBlock, text_of
from anabranch.tree import Node, Path, Tree, is_said, open_questions, project

State: TypeAlias = Literal["running", "waits for you", "done", "failed", "stopped"]
"""The state of a branch; a stopped branch was interrupted before its end."""

WAITS: State = "waits for you"


@dataclass(frozen=True, slots=True)
class ShownBranch:
    """A branch for display; ``conclusion`` is ``None`` before the branch's end."""

    description: str
    state: State
    conclusion: str | None = None


def branch_around(path: Path) -> Node | None:
    for node in reversed(path.nodes):
        if node.kind == "branch" or is_said(node):
            return node if node.kind == "branch" else None
    return None


def branches_in(tree: Tree) -> Mapping[str, ShownBranch]:
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


def transcript_of(path: Path, start: Node) -> str:
    end = path.nodes[-1]
    if end.id == start.id:
        return ""
    first = [node.id for node in path.nodes].index(start.id)
    messages = project(path.nodes[first:], path.results)[1:]
    uses = {use.id for use in end.tool_uses}
    return _text(each for each in messages if not _answers(each, uses))


def _answers(message: Message, uses: Collection[str]) -> bool:
    return any(isinstance(b, ToolResultBlock) and b.tool_use_id in uses for b in message.content)


def _text(messages: Iterable[Message]) -> str:
    return "\n".join(_line(message.role, each) for message in messages for each in message.content)


def _line(role: str, block: Block) -> str:
    match block:
        case TextBlock():
            return f"{role}: {block.text}"
        case ToolUseBlock():
            given = block.malformed or json.dumps(block.input, ensure_ascii=False)
            return f"{role} calls {block.name} {given}"
        case ToolResultBlock():
            texts = text_of(each for each in block.content if isinstance(each, TextBlock))
            return f"{'error' if block.is_error else 'result'}: {texts}"
        case _:
            return f"({block.type})"

"""Reads from the conversation tree how far the branches below a tool use have come, also for display."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from anabranch.agents._batch_line import AskedRound, BatchLine
from anabranch.messages import TextBlock, text_of
from anabranch.models import INTERRUPTED
from anabranch.tree import (
    ASIDE,
    ERROR,
    Node,
    Path,
    Results,
    Surroundings,
    Tree,
    TreeStore,
    is_said,
    open_questions,
)

ALLOW_WORK = "allow_work"
"""In a branch's first node: whether its tools run; by default, they do."""
BEFORE = "before"
"""In a branch's first node: the first node of the branch that must end before this one begins."""
BRANCH_ID = "branch_id"
"""In the first node of a branch of folding: the id of its record."""
PARTIAL = "partial"
"""In the node at which a branch has failed: the received part of its reply."""


@dataclass(frozen=True, slots=True)
class BranchOutcome:
    """The result of a branch: its last node, its failure, or the question at which it waits.

    Attributes:
        start: the node with the branch's prompt.
        end: the branch's last node; in a failed branch, the node with the error.
        error: the reason for a failure; ``None`` if the branch has not failed.
        partial: the received part of the reply in which the branch has failed.
        waits: whether the branch has not ended because its tools wait for answers.
    """

    start: Node
    end: Node
    error: str | None = None
    partial: str = ""
    waits: bool = False

    @property
    def text(self) -> str:
        """The text of the branch's last reply; empty if the branch has failed or waits."""
        return "" if self.error is not None or self.waits else self.end.text


class BranchProgress:
    """The branches among ``nodes``, parents first; ``asleep`` are sleeping uses after their callers."""

    def __init__(
        self,
        nodes: Iterable[Node],
        results: Results,
        asleep: Container[tuple[str, str]] = (),
        now: float = 0.0,
    ) -> None:
        self._results = results
        self._asleep = asleep
        self._now = now
        self._known: dict[str, Node] = {}
        self._below: dict[str, list[Node]] = {}
        for node in nodes:
            self._known[node.id] = node
            self._below.setdefault(node.parent_id or "", []).append(node)

    @classmethod
    async def below(
        cls,
        store: TreeStore,
        caller: Node,
        children: Sequence[Node] | None = None,
        asleep: Container[tuple[str, str]] = (),
        now: float = 0.0,
    ) -> BranchProgress:
        known = await store.children(caller.id) if children is None else children
        if not any(node.kind == "branch" for node in known):
            return cls((), {}, asleep, now)
        tree = await store.tree(caller.thread_id)
        return cls(tree.nodes, tree.results, asleep, now)

    def opened(self, caller: Node, tool_use_id: str) -> list[Node]:
        return [
            node
            for node in self._below.get(caller.id, ())
            if node.kind == "branch" and node.data.get("tool_use_id") == tool_use_id
        ]

    def path(self, start: Node) -> list[Node]:
        nodes, works = [start], bool(start.data.get(ALLOW_WORK, True))
        while (node := self._next(nodes[-1], works=works)) is not None:
            nodes.append(node)
        return nodes

    def _next(self, node: Node, *, works: bool = False) -> Node | None:
        """Return the next node of a branch; after a partial reply, only a failure follows.

        Messages and different answers that a user adds below do not belong to the branch.
        """
        below = self._below.get(node.id, [])
        for each in below:
            limited = each.kind == "user" and self._next(each) is not None  # a summary follows
            if ERROR in each.data and (limited or each.kind == "assistant"):
                return each
        if node.kind == "assistant" or node.kind in ASIDE:
            batch = works and (bool(node.tool_uses) or node.kind in ASIDE)
            return next((e for e in below if batch and e.kind in (*ASIDE, "results")), None)
        replies = [each for each in below if each.kind == "assistant"]
        whole = (each for each in replies if each.data.get("stop_reason") not in _CUT)
        failed = (each for each in replies if self._next(each) is not None)
        return next(whole, None) or next(failed, None)

    def outcome(self, start: Node) -> BranchOutcome | None:
        path = self.path(start)
        end, works = path[-1], start.data.get(ALLOW_WORK, True)
        if end.kind != "assistant" or (end.tool_uses and works):
            return None
        if ERROR in end.data:
            partial = str(end.data.get(PARTIAL, ""))
            return BranchOutcome(start, end, str(end.data[ERROR]), partial)
        if ERROR in path[-2].data:  # a summary follows after a limit
            return BranchOutcome(start, end, str(path[-2].data[ERROR]), said_in(path))
        return BranchOutcome(start, end)

    def is_over(self, start: Node) -> bool:
        caller = self._known[start.parent_id or ""]
        tool_use_id = str(start.data.get("tool_use_id"))
        has_returned = BatchLine([caller], self._results).has_returned(tool_use_id)
        return has_returned or self.outcome(start) is not None

    def waits(self, start: Node) -> bool:
        before = str(start.data.get(BEFORE, ""))
        siblings = self._below.get(start.parent_id or "", [])
        if any(each.id == before and self.outcome(each) is None for each in siblings):
            return True
        line = self.line(start)
        if line is None or not line.unfinished:  # no tool holds the branch up
            return False
        return not self.can_continue(line)

    def going(
        self, starts: Iterable[Node], within: frozenset[str] | None, *, is_asked: bool
    ) -> list[Node]:
        """Return the ``starts`` that continue now; questions hold up a branch unless ``is_asked``."""
        chosen = [each for each in starts if within is None or each.id in within]
        open_now = [each for each in chosen if self.outcome(each) is None]
        return [each for each in open_now if is_asked or not self.waits(each)]

    def can_continue(self, line: BatchLine) -> bool:
        return any(
            self._is_ready(line, use.id)
            for use in line.unfinished
            if not line.is_waiting(use.id, self._now)
            and (line.caller.id, use.id) not in self._asleep
        )

    def _is_ready(self, line: BatchLine, tool_use_id: str) -> bool:
        starts = self.opened(line.caller, tool_use_id)
        going = [start for start in starts if not self.is_over(start)]
        return not going or any(not self.waits(start) for start in going)

    def questions(self, line: BatchLine) -> list[Node]:
        own = {question.id for round_ in _waiting(line) for question in round_.unanswered}
        found = [node for node in line.nodes if node.id in own]
        return found + [each for inner in self._inner(line) for each in self.questions(inner)]

    def until(self, line: BatchLine) -> float:
        """Return the first time when a tool of ``line`` or a branch continues unanswered."""
        own = [round_.until for round_ in _waiting(line)]
        return min([*own, *map(self.until, self._inner(line))], default=math.inf)

    def _inner(self, line: BatchLine) -> list[BatchLine]:
        starts = [start for use in line.unfinished for start in self.opened(line.caller, use.id)]
        lines = [self.line(start) for start in starts if self.outcome(start) is None]
        return [inner for inner in lines if inner is not None]

    def line(self, start: Node) -> BatchLine | None:
        return BatchLine.read(Path(tuple(self.path(start)), self._results))


@dataclass(frozen=True, slots=True)
class PathEnd:
    """The end of a path: its open questions, and whether its tools or branches can continue.

    Attributes:
        is_unread: whether all tools have returned, and the model has not read their results yet.
        questions: the open questions, in the order of the line; then the questions in branches.
        until: the time at which the first of their tools continues without an answer.
        is_cut_off: whether a tool waits for no question: it sleeps, never began, or runs branches.
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
        line = BatchLine.read(around)
        if line is None:
            return cls(around)
        below = around.below[line.caller.id]
        progress = await BranchProgress.below(store, line.caller, below, asleep, now)
        can_continue = progress.can_continue(line)
        questions, until = progress.questions(line), progress.until(line)
        cut_off = any(line.round_id(use.id) is None for use in line.unfinished)
        return cls(around, can_continue, not line.unfinished, questions, until, cut_off)


def _waiting(line: BatchLine) -> list[AskedRound]:
    return [line.rounds[use.id] for use in line.unfinished if line.is_waiting(use.id)]


_CUT = frozenset({"error", INTERRUPTED})


def said_in(path: Sequence[Node]) -> str:
    texts = (node.text for node in reversed(path) if node.kind == "assistant")
    return next((text for text in texts if text), "")


@dataclass(frozen=True, slots=True)
class OpenFork:
    """The branches between ``caller``, whose tools opened the outermost, and a node."""

    caller: Node
    within: frozenset[str]


def open_fork(path: Path) -> OpenFork | None:
    nodes = path.nodes
    said = [at for at, node in enumerate(nodes) if is_said(node)]
    for at in range(said[-1] + 1 if said else 1, len(nodes)):
        use_id = str(nodes[at].data.get("tool_use_id"))
        caller = nodes[at - 1]
        has_returned = BatchLine([caller], path.results).has_returned(use_id)
        if nodes[at].kind == "branch" and not has_returned:
            within = frozenset(node.id for node in nodes[at:] if node.kind == "branch")
            return OpenFork(caller, within)
    return None


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

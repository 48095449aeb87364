"""One line of a tool batch: the node that calls tools, and the questions and answers below it.

A different answer to a question starts another line, which shares the nodes above the answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from anabranch._engine import Answer
from anabranch.agents._tool_questions import (
    FrontEndResult,
    TimeOver,
    is_in_front_end,
    is_other_answer,
    question_id,
    recorded_reply,
    reply_of,
    stored_with,
)
from anabranch.messages import ToolUseBlock
from anabranch.tree import ASIDE, Node, Path, Result, is_placeholder


@dataclass(frozen=True, slots=True)
class AnsweredRound:
    """The state of a call when it asked, and its answers by step; ``in_time`` before a sleep ended."""

    state: str
    answers: Mapping[str, Answer]
    in_time: bool


@dataclass(frozen=True, slots=True)
class AskedRound:
    """The questions that a tool asked in one round, and the answers on one line, by question."""

    questions: list[Node]
    answers: dict[str, Node] = field(default_factory=dict[str, Node])

    @property
    def id(self) -> str:
        return self.questions[0].id

    @property
    def unanswered(self) -> list[Node]:
        return [each for each in self.questions if each.id not in self.answers]

    @property
    def is_in_front_end(self) -> bool:
        return is_in_front_end(self.questions[0])

    @property
    def is_returned(self) -> bool:
        answer = self.answers.get(self.id)
        return answer is not None and isinstance(reply_of(answer), FrontEndResult)

    @property
    def until(self) -> float:
        """The time at which the tool continues without further answers; infinite for most tools."""
        until = self.questions[0].data.get("until")
        return float(until) if isinstance(until, int | float) else math.inf

    def answered(self) -> AnsweredRound:
        first, answers = self.questions[0], self.answers
        given = {str(q.data["step_id"]): recorded_reply(answers[q.id]) for q in self.questions}
        return AnsweredRound(
            str(stored_with(first, "state")),
            {step_id: answer for step_id, answer in given.items() if answer is not None},
            in_time=self.until < math.inf and all(map(self._is_in_time, answers.values())),
        )

    def _is_in_time(self, answer: Node) -> bool:
        """Whether an answer came before the tool continued; a later second answer counts too."""
        is_first = not (is_other_answer(answer) or isinstance(reply_of(answer), TimeOver))
        return not is_first or answer.created_at < self.until


class BatchLine:
    """One line of a tool batch: ``nodes[0]`` calls tools, and ``above`` are the nodes before it.

    Attributes:
        rounds: the last round that each tool has asked in, by tool use.
        answers: all answers on the line, by question; of several, the nearest to the line's end.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        results: Mapping[tuple[str, str], Result],
        above: Sequence[Node] = (),
    ) -> None:
        self.nodes: tuple[Node, ...] = tuple(nodes)
        self._above: tuple[Node, ...] = tuple(above)
        self.rounds: dict[str, AskedRound] = {}
        self.answers: dict[str, Node] = {}
        self._results = results
        asked_in: dict[str, AskedRound] = {}
        for node in self.nodes[1:]:
            if node.kind == "answer":
                self.answers[question_id(node)] = node
                if (round_ := asked_in.get(question_id(node))) is not None:
                    round_.answers[question_id(node)] = node
            elif "tool_use_id" in node.data:  # a question from a file has no call
                asked_in[node.id] = self._asked(node)

    def _asked(self, question: Node) -> AskedRound:
        use_id = str(question.data["tool_use_id"])
        last = self.rounds.get(use_id)
        if last is None or last.id != question.data.get("round", question.id):
            last = self.rounds[use_id] = AskedRound([])
        last.questions.append(question)
        return last

    @classmethod
    def read(cls, path: Path) -> BatchLine | None:
        first = len(path.nodes) - 1
        while first > 0 and path.nodes[first].kind in ASIDE:
            first -= 1
        if not path.nodes[first].tool_uses:
            return None
        return cls(path.nodes[first:], path.results, path.nodes[:first])

    @property
    def caller(self) -> Node:
        return self.nodes[0]

    @property
    def path(self) -> Path:
        return Path((*self._above, *self.nodes), self._results)

    @property
    def path_to_caller(self) -> Path:
        return Path((*self._above, self.caller), self._results)

    @property
    def last(self) -> Node:
        return self.nodes[-1]

    def extended(self, nodes: Iterable[Node], results: Iterable[Result] = ()) -> BatchLine:
        added = {(each.node_id, each.tool_use_id): each for each in results}
        return BatchLine((*self.nodes, *nodes), {**self._results, **added}, self._above)

    @cached_property
    def unfinished(self) -> tuple[ToolUseBlock, ...]:
        """The tool uses of this reply without a result, apart from placeholders."""
        return tuple(use for use in self.caller.tool_uses if not self.has_returned(use.id))

    def is_waiting(self, use_id: str, now: float = 0.0) -> bool:
        round_ = self.rounds.get(use_id)
        return round_ is not None and bool(round_.unanswered) and now < round_.until

    def round_of(self, question: Node) -> AskedRound:
        return self.rounds[str(stored_with(question, "tool_use_id"))]

    def is_late(self, question: Node, now: float) -> bool:
        """Whether a question has no answer, and its tool continues ``now`` without one."""
        return question.id not in self.answers and self.round_of(question).until <= now

    def has_returned(self, use_id: str) -> bool:
        found = self.result(use_id)
        return found is not None and not is_placeholder(found)

    def result(self, use_id: str) -> Result | None:
        """Return the result of a tool on this line, not one above an answer that starts the line."""
        asked = {node.id for node in self.nodes if node.data.get("tool_use_id") == use_id}
        for node in reversed(self.nodes):
            found = self._results.get((node.id, use_id))
            began = node.kind == "answer" and is_other_answer(node) and question_id(node) in asked
            if found is not None or began:
                return found
        return None

    def has_begun(self, use_id: str) -> bool:
        return self.round_id(use_id) is not None or self.result(use_id) is not None

    def round_id(self, use_id: str) -> str | None:
        return self.rounds[use_id].id if use_id in self.rounds else None

    def above(self, node: Node) -> BatchLine:
        length = [each.id for each in self.nodes].index(node.id)
        return BatchLine(self.nodes[:length], self._results, self._above)

    def holder(self, use_id: str) -> Node:
        """Return the node that stores a tool's result: its last answer, or else the caller.

        Only paths through this node see the result.
        """
        round_ = self.rounds.get(use_id)
        return self.caller if round_ is None else list(round_.answers.values())[-1]


def result_at(path: Path, tool_use_id: str) -> Result | None:
    held = (path.results.get((node.id, tool_use_id)) for node in reversed(path.nodes))
    return next((each for each in held if each is not None), None)

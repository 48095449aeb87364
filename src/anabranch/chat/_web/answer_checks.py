"""Checks that an answer is for an open question of this thread, is in time, and fits the form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from anabranch.agents import (
    Agent,
    FrontEndResult,
    Reply,
    TimeOver,
    given_answer,
    is_in_front_end,
    line_at_head,
)
from anabranch.chat._web.pending_questions import FieldError, PendingQuestion, Questions, errors_in
from anabranch.errors import ToolError
from anabranch.messages import ElicitReply
from anabranch.tree import Node, Surroundings

BY_MESSAGE = "The front end runs this tool: it sends the result as a tool message of a run."
ANSWERED = "The question already has another answer."
OPEN = "The question is still open: answer it in its conversation."
TOO_LATE = "The time for an answer is over: the tool continues without an answer."
EFFECTS_UNDONE = "The server has undone the effects of this call, so the call cannot continue."


class AnswerRefusedError(Exception):
    """The answer does not fit its question, or the question does not wait for an answer.

    ``reason`` is ``unknown``, ``answered``, ``expired`` or ``invalid``; for a different answer also
    ``open`` without a first one, or ``closed`` if the call cannot continue.
    """

    def __init__(self, reason: str, message: str, errors: list[FieldError] | None = None) -> None:
        self.reason = reason
        self.errors: list[FieldError] = errors or []
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class CheckedAnswer:
    question: Node
    reply: Reply
    around: Surroundings


class AnswerChecks:
    def __init__(self, agent: Agent, questions: Questions, thread_id: str) -> None:
        self._agent = agent
        self._questions = questions
        self._thread_id = thread_id

    async def first(
        self, question_id: str, given: ElicitReply | FrontEndResult
    ) -> CheckedAnswer | None:
        """Return the first answer to a question, ``None`` if the same answer is stored."""
        read = await self._read(question_id, given)
        before = await given_answer(self._agent, read.question, read.around)
        if isinstance(before, TimeOver):
            raise AnswerRefusedError("expired", TOO_LATE)
        if before is not None:
            if before == read.reply:
                return None
            raise AnswerRefusedError("answered", ANSWERED)
        await self._check_time(read)
        return read

    async def another(self, question_id: str, given: ElicitReply) -> CheckedAnswer:
        read = await self._read(question_id, given)
        if await given_answer(self._agent, read.question, read.around) is None:
            await self._check_time(read)
            raise AnswerRefusedError("open", OPEN)
        await self._check(read, is_answered=True)
        if await self._questions.is_undone(read.question, read.around):
            raise AnswerRefusedError("closed", EFFECTS_UNDONE)
        return read

    async def _read(self, question_id: str, given: ElicitReply | FrontEndResult) -> CheckedAnswer:
        around = await line_at_head(self._agent.store, self._thread_id, question_id)
        nodes = () if around is None else around.nodes
        node = next((each for each in nodes if each.id == question_id), None)
        if around is None or node is None or node.kind != "question":
            raise AnswerRefusedError("unknown", f"Unknown question {question_id!r}.")
        if is_in_front_end(node) and not isinstance(given, FrontEndResult):
            raise AnswerRefusedError("invalid", BY_MESSAGE)
        return CheckedAnswer(node, given, around)

    async def _check_time(self, read: CheckedAnswer) -> None:
        shown, now = await self._check(read), self._agent.dependencies.clock.now()
        if shown.continues_at is not None and shown.continues_at <= now:
            raise AnswerRefusedError("expired", TOO_LATE)

    async def _check(self, read: CheckedAnswer, *, is_answered: bool = False) -> PendingQuestion:
        try:
            shown = await self._questions.unexpired(
                read.question, read.around, is_answered=is_answered
            )
        except ToolError as error:
            raise AnswerRefusedError("expired", str(error)) from error
        if shown is None:
            raise AnswerRefusedError("expired", "The question has expired: its call has ended.")
        if not isinstance(read.reply, FrontEndResult):
            check_form(shown.form, read.reply)
        return shown


def check_form(form: Mapping[str, Any] | None, reply: ElicitReply) -> None:
    if errors := errors_in(form, reply):
        message = "; ".join(f"{each.field or 'answer'}: {each.message}" for each in errors)
        raise AnswerRefusedError(
            "invalid", f"The answer does not fit the question's form: {message}.", errors
        )

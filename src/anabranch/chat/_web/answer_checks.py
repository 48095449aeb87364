"""The checks of an answer: the question is of this thread, has time left, and the answer fits it."""

from __future__ import annotations

from pydantic import ValidationError

from anabranch.agents import Agent, Reply
from anabranch.chat._web.pending_questions import FieldError, Questions, read_reply
from anabranch.elicitation import describe
from anabranch.errors import ToolError
from anabranch.messages import ElicitReply
from anabranch.tree import Node

__all__ = ["ANSWERED", "AnswerChecks", "AnswerRefusedError"]

ANSWERED = "The question was answered differently."
OPEN = "The question is still open: answer it in its conversation."
UNDONE = "What this call had done is undone: it cannot be continued."


class AnswerRefusedError(Exception):
    """An answer cannot be taken: it does not fit, or the question does not wait for it.

    Attributes:
        reason: ``unknown``, ``answered``, ``expired`` or ``invalid``; where another answer was to
            be given, also ``open``, for it has none yet, or ``closed``, for its call does not go on
            from there.
        errors: what is wrong with which field.
    """

    def __init__(self, reason: str, message: str, errors: list[FieldError] | None = None) -> None:
        self.reason = reason
        self.errors: list[FieldError] = errors or []
        super().__init__(message)


class AnswerChecks:
    """Checks answers to the questions of one thread."""

    def __init__(self, agent: Agent, questions: Questions, thread_id: str) -> None:
        self._agent = agent
        self._questions = questions
        self._thread_id = thread_id

    async def first(self, question_id: str, given: ElicitReply) -> Reply | None:
        """Return a first answer as it is stored, ``None`` if the question has this answer already.

        Raises:
            AnswerRefusedError: it cannot be answered, or not like this.
        """
        node, reply = await self._read(question_id, given)
        before = await self._agent.given_answer(node)
        if before is not None:
            if before == reply:
                return None
            raise AnswerRefusedError("answered", ANSWERED)
        await self._check(node, reply)
        return reply

    async def another(self, question_id: str, given: ElicitReply) -> Reply:
        """Return another answer to a question that has one, as it is stored.

        Raises:
            AnswerRefusedError: it cannot be answered, or not like this.
        """
        node, reply = await self._read(question_id, given)
        if await self._agent.given_answer(node) is None:
            raise AnswerRefusedError("open", OPEN)
        await self._check(node, reply)
        if await self._questions.is_undone(node):
            raise AnswerRefusedError("closed", UNDONE)
        return reply

    async def _read(self, question_id: str, given: ElicitReply) -> tuple[Node, Reply]:
        """Return a question of the thread, and an answer to it as it is stored.

        Raises:
            AnswerRefusedError: there is no such question, or the answer is none of its kind.
        """
        node = await self._agent.store.node(question_id)
        if node is None or node.kind != "question" or node.thread_id != self._thread_id:
            raise AnswerRefusedError("unknown", f"There is no question {question_id!r} here.")
        try:
            return node, read_reply(node, given)
        except ValidationError as problem:
            raise AnswerRefusedError("invalid", f"{describe(problem)}.") from None

    async def _check(self, node: Node, reply: Reply) -> None:
        """Check that a question has time left, and that an answer fits it.

        Raises:
            AnswerRefusedError: one of these is not so.
        """
        try:
            expired = await self._questions.has_expired(node)
            shown = await self._questions.shown(node)
        except ToolError as error:
            raise AnswerRefusedError("expired", str(error)) from error
        if expired:
            raise AnswerRefusedError("expired", "The question has expired: its call has ended.")
        if errors := self._questions.errors(shown, reply):
            message = "; ".join(f"{each.field or 'answer'}: {each.message}" for each in errors)
            raise AnswerRefusedError("invalid", f"The answer does not fit: {message}.", errors)

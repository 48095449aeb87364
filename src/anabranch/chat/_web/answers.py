"""Checks answers, and answers a question of a recorded call differently.

A first answer is for an open question of its thread, is in time, and fits the form. A different
answer starts a second line of the call. The new line replays the call, and has its own effects,
under their own idempotency keys.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from anabranch._asking import Host
from anabranch._durable import (
    UNDONE,
    CallRecord,
    CallService,
    CallStore,
    Durability,
    Job,
    RoundRecord,
    latest_number,
    load_answers,
    load_notes,
)
from anabranch._engine import Answer, Ask, Journal, discard
from anabranch.agents import (
    Agent,
    AgentDependencies,
    FrontEndResult,
    Reply,
    TimeOver,
    given_answer,
    is_in_front_end,
    line_at_head,
)
from anabranch.chat._web.pending_questions import FieldError, PendingQuestion, Questions, errors_in
from anabranch.errors import AnabranchError, InvalidTokenError, StoreError, ToolError
from anabranch.messages import ElicitReply
from anabranch.tool import Runtime, Tool
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


class _Replies:
    """Ends a round on such a line with the names of the open questions."""

    kind: str = "calls room"

    def make(self, asks: tuple[Ask, ...], state: str) -> list[str]:
        del state
        return [ask.step_id for ask in asks]

    def dump(self, reply: list[str]) -> dict[str, Any]:
        return {"asks": reply}

    def load(self, stored: dict[str, Any], state: str) -> list[str]:
        del state
        return list(stored["asks"])


_REPLIES = _Replies()


async def answer_differently(
    dependencies: AgentDependencies,
    policy: Durability,
    record: CallRecord,
    tool: Tool[Any],
    step_id: str,
    reply: ElicitReply,
) -> str:
    await _check_time(dependencies, policy.store, record.call_id)
    asked = await _round_that_asked(policy.store, record, step_id)
    _check(asked, step_id, reply)
    journal = _journal(asked)
    given = await _given(policy.store, record.call_id, asked)
    answers = {**given, step_id: Answer(reply.model_dump(mode="json", exclude_none=True))}
    host = Host(dependencies.capabilities, dependencies.model, own=dependencies.capabilities)
    runtime = Runtime(
        limits=dependencies.tool_limits, clock=dependencies.clock, version=dependencies.version
    )
    service = CallService(runtime, replace(policy, forks="fork"))
    arguments = tool.validate(json.loads(record.arguments))
    owner = (record.principal, record.thread, record.node)
    job = Job(tool, arguments, host, discard, *owner)
    try:
        await service.run_round(job, journal, answers, _REPLIES)
    except StoreError:
        raise
    except InvalidTokenError as refusal:
        await _check_time(dependencies, policy.store, record.call_id)
        raise AnswerRefusedError("closed", EFFECTS_UNDONE) from refusal
    except Exception as error:
        # The caller sees the failed line with its error, unless the line has not even started.
        ended = await policy.store.find(journal.line)
        if ended is None or ended.state.is_open:
            if isinstance(error, AnabranchError):
                raise AnswerRefusedError("closed", str(error)) from error
            raise
    return journal.line


async def _check_time(dependencies: AgentDependencies, store: CallStore, call_id: str) -> None:
    record, now = await store.find(call_id), dependencies.clock.now()
    if record is None:
        return
    if record.state in UNDONE or (record.state.is_open and record.deadline <= now):
        raise AnswerRefusedError("expired", "The call has expired.")


async def _round_that_asked(store: CallStore, record: CallRecord, step_id: str) -> RoundRecord:
    for number in range(await latest_number(store, record.call_id), -1, -1):
        ended = await store.round(record.call_id, number)
        if ended is not None and ended.state and step_id in _journal(ended).pending:
            return ended
    raise AnswerRefusedError(
        "unknown", f"The store has no round of this call that ended with the question {step_id!r}."
    )


def _journal(ended: RoundRecord) -> Journal:
    try:
        return Journal.loads(ended.state)
    except ValueError as problem:
        raise AnswerRefusedError("closed", f"The call cannot be continued: {problem}.") from None


async def _given(store: CallStore, line: str, asked: RoundRecord) -> Mapping[str, Answer]:
    """Return the answers that the round after ``asked`` took on ``line``.

    If that round has not begun, the client that asked must answer first. Nobody else answers on a
    line that this module started.
    """
    number = asked.number + 1
    inbox = await store.answers(line)
    taken = {step: each.text for step, each in inbox.items() if each.round == number}
    is_begun = bool(taken or await store.entries(line, number) or await store.round(line, number))
    if not is_begun and json.loads(asked.reply).get("kind") != _REPLIES.kind:
        raise AnswerRefusedError("open", "The question is still open: its own client answers it.")
    return load_answers(taken)


def _check(asked: RoundRecord, step_id: str, reply: ElicitReply) -> None:
    request = load_notes(asked.notes).asked.get(step_id)
    if not isinstance(request, Mapping) or "message" not in request:
        raise AnswerRefusedError(
            "closed", f"{step_id!r} is not a question to the user in this round."
        )
    form = request.get("requested_schema")
    check_form(form if isinstance(form, dict) else None, reply)

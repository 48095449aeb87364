"""Answers a question of a recorded call differently, which starts a second line of the call.

The new line replays the call, and has its own effects, under their own idempotency keys.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
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
from anabranch.agents import AgentDependencies
from anabranch.chat._web.answer_checks import EFFECTS_UNDONE, AnswerRefusedError, check_form
from anabranch.errors import AnabranchError, InvalidTokenError, StoreError
from anabranch.messages import ElicitReply
from anabranch.tool import Runtime, Tool


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

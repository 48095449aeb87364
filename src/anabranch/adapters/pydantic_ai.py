"""Adapter to Pydantic AI: a tool's question ends the run with ``DeferredToolRequests``.

    agent = Agent(model, tools=[as_tool(book_hotel, rounds)], output_type=[str, DeferredToolRequests])
    result = await agent.run("Book a hotel in Rome")
    asked = questions(result.output)                          # {call id: Asked}
    await agent.run(message_history=result.all_messages(),
                    deferred_tool_results=results(result.output, {call_id: {question_id: answer}}))

Pydantic AI sees a paused call as a call that requires approval; its metadata hold the questions and
the sealed state. ``results`` approves the call, and passes the answers to the tool. The tool asks
unanswered questions again. The agent's model answers samples, and notices become custom events
named ``anabranch_notice``.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from anabranch._engine import Notice
from anabranch.adapters._paused_call import (
    Answers,
    Failed,
    PausedCall,
    as_blocks,
    block_text,
    notice_json,
    require_both,
)
from anabranch.errors import find_framework
from anabranch.messages import FileBlock, ResultBlock, TextBlock
from anabranch.models import as_sampler
from anabranch.rounds import Asked, Returned, Rounds
from anabranch.tool import Tool

__all__ = ["as_tool", "questions", "results"]


def as_tool(
    tool: Tool[Any], rounds: Rounds, *, principal: Callable[[Any], str] | None = None
) -> Any:  # noqa: ANN401 - the framework's
    """Return ``tool`` as a ``Tool`` of Pydantic AI.

    Args:
        tool: the tool.
        rounds: runs the tool's rounds; the sampler of ``rounds``, if any, replaces the agent's
            model.
        principal: returns the caller from the ``RunContext``.

    Raises:
        MissingExtraError: if Pydantic AI is not installed, or is too old.
    """
    require_both(tool, rounds)
    ai = _library()

    async def run(ctx: Any, **arguments: object) -> object:  # noqa: ANN401 - RunContext
        async def emit(notice: Notice) -> None:
            await ctx.emit(_notice_event()(**notice_json(notice)))

        given: dict[str, Any] = (ctx.tool_call_approved and ctx.tool_call_metadata) or {}
        named = f"{ctx.conversation_id}/{ctx.tool_call_id}"
        caller = principal(ctx) if principal else ""
        call = PausedCall(tool, arguments, rounds, named, caller)
        sampler = rounds.sampler or as_sampler(ctx.model)
        ended = await call.next(
            given or None, given.get("answers"), sampler=sampler, on_notice=emit
        )
        if isinstance(ended, Failed):
            raise ai.ToolFailed(ended.text)
        if isinstance(ended, Returned):
            return [_content(ai, each) for each in as_blocks(ended.value)] or ended.value
        raise ai.ApprovalRequired(metadata=ended)

    schema = tool.input_schema
    return ai.Tool.from_schema(run, tool.name, tool.description, schema, takes_ctx=True)


def _content(ai: Any, block: ResultBlock) -> Any:  # noqa: ANN401 - the framework's
    if isinstance(block, TextBlock | FileBlock):
        return block_text(block)
    return ai.BinaryContent(base64.b64decode(block.data), media_type=block.mime_type)


def questions(requests: Any) -> dict[str, Asked]:  # noqa: ANN401 - DeferredToolRequests
    """Return the open questions of the agent's anabranch tools, by call id.

    ``requests`` is the output of a run; if it is not a ``DeferredToolRequests``, no question is
    open. If the last answers were refused, ``requests.metadata[call_id]["problem"]`` has the
    reason.
    """
    stored: dict[str, dict[str, Any]] | None = getattr(requests, "metadata", None)
    if stored is None:
        return {}
    return {
        call.tool_call_id: Asked.from_json(stored[call.tool_call_id])
        for call in requests.approvals
        if {"questions", "state"} <= stored.get(call.tool_call_id, {}).keys()
    }


def results(requests: Any, answers: Mapping[str, Answers]) -> Any:  # noqa: ANN401
    """Return ``DeferredToolResults`` that pass ``answers`` to the next run.

    ``answers`` has the answers by call id and question id. A call without answers asks again. Add
    the results of other deferred calls to the returned object.
    """
    ours = questions(requests)
    given = {each: {**requests.metadata[each], "answers": answers.get(each, {})} for each in ours}
    return requests.build_results(approvals=dict.fromkeys(ours, True), metadata=given)


def _library() -> Any:  # noqa: ANN401 - a module
    return find_framework("pydantic_ai", "pydantic-ai-slim", "2.68", __name__)


@cache
def _notice_event() -> Any:  # noqa: ANN401 - a class whose base is the framework's
    base = _library().CustomEvent

    @dataclass(kw_only=True)
    class AnabranchNotice(base):  # type: ignore[misc, valid-type]
        message: str
        level: str | None = None
        progress: float | None = None
        total: float | None = None

    return AnabranchNotice

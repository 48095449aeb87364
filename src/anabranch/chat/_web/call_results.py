"""Finds the results of the front end's tools among the messages of an AG-UI run.

A client sends its whole transcript with each run. Only tool messages of the last turn, between the
user's previous message and the present one, can be new. Clients put a result after its call, and
other messages may follow. The tree already has the results of earlier turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from ag_ui.core import Message, ToolMessage
from starlette.exceptions import HTTPException

from anabranch.agents import (
    Agent,
    FrontEndResult,
    PathEnd,
    end_of,
    is_in_front_end,
    result_at,
    stored_with,
)
from anabranch.chat._web.answer_checks import AnswerRefusedError
from anabranch.messages import text_of
from anabranch.tree import Node

NONE_WAITS = "No tool of the front end waits for a result."


def ends_with_results(messages: Sequence[Message]) -> bool:
    """Whether the last of a run's messages is a tool's result, and not the user's message."""
    return bool(messages) and messages[-1].role != "user" and bool(_given(messages))


async def new_results(
    agent: Agent, thread_id: str, messages: Sequence[Message]
) -> dict[str, FrontEndResult]:
    """Return the results of the front end's open calls, by the ids of the calls' nodes."""
    if not (given := _given(messages)):
        return {}
    end = await end_of(agent, thread_id)
    calls = {} if end is None else _open_calls(end)
    return {
        calls[each.tool_call_id].id: _result(each) for each in given if each.tool_call_id in calls
    }


async def all_results(
    agent: Agent, thread_id: str, messages: Sequence[Message]
) -> dict[str, FrontEndResult]:
    """Return the results that a run brings, by the nodes of their calls; refuse any other result.

    If none of these calls is open, an earlier run may have brought the results. A message that repeats
    the server's or an earlier run's message is no result.

    Raises:
        AnswerRefusedError: if a result is for no call or for a tool of the server, or two results
            are for one call.
    """
    end = await end_of(agent, thread_id)
    if end is None:
        raise AnswerRefusedError("unknown", NONE_WAITS)
    open_calls, found = _open_calls(end), dict[str, FrontEndResult]()
    before = {_use_id(node): node for node in end.around.nodes if is_in_front_end(node)}
    given = _given(messages)
    for each in given:
        call = open_calls.get(each.tool_call_id)
        if call is None and each.tool_call_id not in before:
            await _check_known(agent, end, each)
        elif call is not None and call.id in found:
            raise AnswerRefusedError("invalid", f"Two results are for {each.tool_call_id!r}.")
        elif call is not None:
            found[call.id] = _result(each)
    if not found:
        again = (each for each in given if each.tool_call_id in before)
        found = {before[each.tool_call_id].id: _result(each) for each in again}
    if not found:
        raise AnswerRefusedError("unknown", NONE_WAITS)
    return found


async def _check_known(agent: Agent, end: PathEnd, given: ToolMessage) -> None:
    """Refuse a tool message, unless it repeats a known result or is for another call of the thread."""
    use_id, around = given.tool_call_id, end.around
    callers = [node for node in around.nodes if node.tool_uses]
    use = next((use for node in callers[-1:] for use in node.tool_uses if use.id == use_id), None)
    if use is not None:
        result = result_at(around, use_id)
        if result is None or given.content != text_of(result.pending or result.content):
            raise AnswerRefusedError(
                "invalid", f"The server returns the result of the tool {use.name!r}."
            )
    elif not _is_called(callers, use_id):
        tree = await agent.store.tree(around.thread.id)  # a branch may have called the tool
        if not _is_called(tree.nodes, use_id):
            raise AnswerRefusedError("unknown", f"No tool call has the toolCallId {use_id!r}.")


def _is_called(nodes: Sequence[Node], use_id: str) -> bool:
    return any(use.id == use_id for node in nodes for use in node.tool_uses)


def _given(messages: Sequence[Message]) -> list[ToolMessage]:
    """Return the tool messages of the last turn, before the present message of the user, if any."""
    left = list(messages)
    while left and left[-1].role == "user":
        left.pop()
    turn = takewhile(lambda each: each.role != "user", reversed(left))
    return [each for each in turn if isinstance(each, ToolMessage)][::-1]


def _open_calls(end: PathEnd) -> dict[str, Node]:
    return {_use_id(node): node for node in end.questions if is_in_front_end(node)}


def _use_id(call: Node) -> str:
    return str(stored_with(call, "tool_use_id"))


def _result(message: ToolMessage) -> FrontEndResult:
    content = message.content
    if not isinstance(content, str):
        texts = [part.text for part in content if part.type == "text"]
        if len(texts) != len(content):
            raise HTTPException(422, "The result of a front end's tool can have text only.")
        content = "\n".join(texts)
    parts = [content] if message.error in {None, content} else [content, message.error or ""]
    return FrontEndResult(result="\n".join(filter(None, parts)), is_error=message.error is not None)

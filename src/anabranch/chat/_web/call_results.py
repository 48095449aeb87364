"""The results of tools that the front end has run, among the messages of a run of AG-UI.

A client sends its whole transcript with each run. Only the tool messages at its end can be new: those
after the last reply, before what the user says then. The others are in the tree already.
"""

from __future__ import annotations

from collections.abc import Sequence

from ag_ui.core import Message, ToolMessage
from starlette.exceptions import HTTPException

from anabranch.agents import Agent, FrontEndResult, PathEnd
from anabranch.agents._batch_line import result_at
from anabranch.agents._tool_questions import is_in_front_end, stored_with
from anabranch.chat._web.answer_checks import AnswerRefusedError
from anabranch.messages import text_of
from anabranch.tree import Node

UNKNOWN = "No tool was called with the toolCallId {!r}."
OURS = "The server itself returns the result of the tool {!r}."
NONE_WAITS = "No tool of the front end waits for a result."


def ends_with_results(messages: Sequence[Message]) -> bool:
    """Whether the last message is the result of a tool: the run brings nothing that the user says."""
    return bool(messages) and isinstance(messages[-1], ToolMessage)


async def new_results(
    agent: Agent, thread_id: str, messages: Sequence[Message]
) -> dict[str, FrontEndResult]:
    """Return the results of calls that are open, by their questions; other messages are history.

    Raises:
        HTTPException: a result has more than text.
    """
    if not (given := _given(messages)):
        return {}
    end = await agent.end(thread_id)
    calls = {} if end is None else _open_calls(end)
    return {
        calls[each.tool_call_id].id: _result(each) for each in given if each.tool_call_id in calls
    }


async def all_results(
    agent: Agent, thread_id: str, messages: Sequence[Message]
) -> dict[str, FrontEndResult]:
    """Return the results with which a run goes on, by the questions that are their calls.

    They may have been given before. A message that repeats what a tool of the server has returned is
    no result.

    Raises:
        AnswerRefusedError: one is for no call, or for one of the server's tools; or two are for one.
        HTTPException: a result has more than text.
    """
    end = await agent.end(thread_id)
    if end is None:
        raise AnswerRefusedError("unknown", NONE_WAITS)
    nodes = (*end.around.nodes, *end.questions)  # an open call comes last, and wins
    calls = {_use_id(node): node for node in nodes if is_in_front_end(node)}
    found: dict[str, FrontEndResult] = {}
    for each in _given(messages):
        call = calls.get(each.tool_call_id)
        if call is None:
            await _check_repeated(agent, end, each)
        elif call.id in found:
            raise AnswerRefusedError("invalid", f"Two results are for {each.tool_call_id!r}.")
        else:
            found[call.id] = _result(each)
    if not found:
        raise AnswerRefusedError("unknown", NONE_WAITS)
    return found


async def _check_repeated(agent: Agent, end: PathEnd, given: ToolMessage) -> None:
    """Check that a message only repeats what a tool of the server has returned."""
    use_id, around = given.tool_call_id, end.around
    uses = [use for node in around.nodes for use in node.tool_uses if use.id == use_id]
    if uses:
        result = result_at(around, use_id)
        text = "" if result is None else text_of(result.pending or result.content)
        if result is None or given.content != text:
            raise AnswerRefusedError("invalid", OURS.format(uses[-1].name))
        return
    tree = await agent.store.tree(around.thread.id)  # it may have been called in a branch
    if not any(use.id == use_id for node in tree.nodes for use in node.tool_uses):
        raise AnswerRefusedError("unknown", UNKNOWN.format(use_id))


def _given(messages: Sequence[Message]) -> list[ToolMessage]:
    """Return the tool messages at the end of a transcript, before what the user says there."""
    left, found = list(messages), list[ToolMessage]()
    while left and left[-1].role == "user":
        left.pop()
    while left and isinstance(last := left.pop(), ToolMessage):
        found.append(last)
    return found[::-1]


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

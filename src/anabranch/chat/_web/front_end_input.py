"""Reads the tools, the context and the results of tools that a front end brings in a run of AG-UI.

A client sends its whole transcript with each run. Only tool messages of the last turn can be new.
Clients put a result after its call, and other messages may follow. A refusal comes before the
server stores anything of the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import takewhile
from typing import cast

from ag_ui.core import Context, Message, RunAgentInput, ToolMessage
from ag_ui.core import Tool as OfferedTool
from pydantic import JsonValue
from pydantic_core import from_json, to_json
from starlette.exceptions import HTTPException

from anabranch._schemas import UnusableSchemaError
from anabranch._text import encodable, number_problem
from anabranch.agents import (
    Agent,
    ContextEntry,
    FrontEnd,
    FrontEndResult,
    PathEnd,
    end_of,
    is_in_front_end,
    most_tools,
    result_at,
    stored_with,
)
from anabranch.chat._web.answers import AnswerRefusedError
from anabranch.chat._web.requests import check_name
from anabranch.messages import ToolSpec, text_of
from anabranch.models import folded
from anabranch.tree import Node, wire_name

MOST = 100
"""The most tools of a front end, and the most entries of context, that a run can have."""

LONGEST = 128 * 1024
"""The most bytes of JSON of all these tools, and of all this context."""

NO_PARAMETERS: dict[str, JsonValue] = {"type": "object", "properties": {}}

NONE_WAITS = "No tool of the front end waits for a result."


def read_front_end(wanted: RunAgentInput, agent: Agent) -> FrontEnd:
    tools, context = wanted.tools or [], wanted.context or []
    for what, given in (("tools of the front end", tools), ("entries of context", context)):
        if given:
            _check_size(what, given)
    if tools:
        _check_names([each.name for each in tools], agent)
    return FrontEnd(
        tools=tuple(map(_spec, tools)),
        context=tuple(
            ContextEntry(description=each.description, value=each.value) for each in context
        ),
    )


def _check_size(what: str, given: Sequence[OfferedTool] | Sequence[Context]) -> None:
    if len(given) > MOST:
        raise HTTPException(422, f"A run can have {MOST} {what}; this one has {len(given)}.")
    size = len(to_json(encodable([each.model_dump() for each in given])))
    if size > LONGEST:
        raise HTTPException(
            422, f"The {what} of one run may have {LONGEST:,} bytes together; these have {size:,}."
        )


def _check_names(names: Sequence[str], agent: Agent) -> None:
    for name in names:
        check_name("The name of a tool", name)
    own = {wire_name(name) for name in agent.tools}
    if taken := [name for name in names if wire_name(name) in own]:
        raise HTTPException(
            422, f"The server has a tool {taken[0]!r}. Give the tool of the front end another name."
        )
    twice = [name for name, count in Counter(map(wire_name, names)).items() if count > 1]
    if twice:
        raise HTTPException(422, f"The front end has two tools {twice[0]!r}. Leave one out.")
    most = most_tools(agent.dependencies.model)
    if most is not None and len(names) + len(own) > most:
        raise HTTPException(
            422,
            f"The model takes at most {most} tools: the server has {len(own)}, and the front end"
            f" {len(names)}. Offer fewer.",
        )


def _spec(tool: OfferedTool) -> ToolSpec:
    given = cast("object", tool.parameters) or NO_PARAMETERS
    if problem := _problem(given):
        raise HTTPException(422, f"No model accepts the parameters of {tool.name!r}: {problem}.")
    schema = cast("dict[str, JsonValue]", given)
    return ToolSpec(name=tool.name, description=tool.description, input_schema=schema)


def _problem(schema: object) -> str | None:
    if not isinstance(schema, dict):
        return "they must be a JSON Schema of an object"
    given = cast("dict[str, JsonValue]", schema)
    return number_problem(given) or _schema_problem(to_json(encodable(given)))


@lru_cache(maxsize=500)
def _schema_problem(schema: bytes) -> str | None:
    try:
        folded(from_json(schema))
    except UnusableSchemaError as error:
        return str(error).rstrip(".")
    return None


def is_answer(wanted: RunAgentInput) -> bool:
    messages = wanted.messages
    ends_with_result = bool(messages) and messages[-1].role != "user" and bool(_given(messages))
    return bool(wanted.resume) or ends_with_result


async def results_in(
    wanted: RunAgentInput, agent: Agent, thread_id: str
) -> dict[str, FrontEndResult]:
    """Return the results that a run brings, by the nodes of their calls."""
    read = _all_results if is_answer(wanted) and not wanted.resume else _new_results
    return await read(agent, thread_id, wanted.messages)


async def _new_results(
    agent: Agent, thread_id: str, messages: Sequence[Message]
) -> dict[str, FrontEndResult]:
    if not (given := _given(messages)):
        return {}
    end = await end_of(agent, thread_id)
    calls = {} if end is None else _open_calls(end)
    return {
        calls[each.tool_call_id].id: _result(each) for each in given if each.tool_call_id in calls
    }


async def _all_results(
    agent: Agent, thread_id: str, messages: Sequence[Message]
) -> dict[str, FrontEndResult]:
    """Return the results that a run brings; refuse any other result.

    If none of these calls is open, an earlier run may have brought the results. A repeated message
    is no result.
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
    """Refuse a tool message, unless it repeats a result or is for another known call."""
    use_id, around = given.tool_call_id, end.around
    callers = [node for node in around.nodes if node.tool_uses]
    use = next((use for node in callers[-1:] for use in node.tool_uses if use.id == use_id), None)
    if use is not None:
        result = result_at(around, use_id)
        if result is None or given.content != text_of(result.pending or result.content):
            raise AnswerRefusedError(
                "invalid",
                f"The server runs the tool {use.name!r}. The front end cannot set its result.",
            )
    elif not _is_called(callers, use_id):
        tree = await agent.store.tree(around.thread.id)  # a branch may have called the tool
        if not _is_called(tree.nodes, use_id):
            raise AnswerRefusedError("unknown", f"No tool call has the toolCallId {use_id!r}.")


def _is_called(nodes: Sequence[Node], use_id: str) -> bool:
    return any(use.id == use_id for node in nodes for use in node.tool_uses)


def _given(messages: Sequence[Message]) -> list[ToolMessage]:
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

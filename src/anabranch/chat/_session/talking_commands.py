"""Commands that set something going: the model, a tool, an answer to a tool's question."""

from __future__ import annotations

import json
from typing import cast

from pydantic import JsonValue

from anabranch.agents._agent_tools import AgentTool, CalledTool, question_of
from anabranch.agents._flows import MAKERS, broadcast_to_leaves, combine
from anabranch.agents._turn import Turn
from anabranch.chat._name_value import read_pairs, split_pairs
from anabranch.chat._session.command_table import Outputs, command
from anabranch.chat._session.moving_commands import number_in
from anabranch.chat._session.output import Output, SessionError
from anabranch.chat._session.session import Session
from anabranch.messages import ElicitReply, ElicitRequest, ToolUseBlock, UrlRequest, text_of
from anabranch.models import INTERRUPTED
from anabranch.tree import Node

__all__ = ["read_answer"]

HOW_TO_ANSWER = (
    'Write /answer with name=value …, or with {"name": value, …}; or /answer decline, or'
    " /answer cancel."
)


@command("say", "TEXT…", "Say something to the model; without a command, that is what happens.")
async def say(session: Session, text: str) -> Outputs:
    """Say something at the cursor, and let the model answer."""
    agent, thread = session.agent, await session.thread(text)
    [said] = await agent.put(thread.id, [(session.cursor, text)])
    return _answered(await agent.go_on(said))


@command("auto", "", "Let the model go on by itself until it uses no more tools.")
async def auto(session: Session) -> Outputs:
    """Go on where something is to be done; where nothing is, say the neutral prompt."""
    await session.walk()
    node = await session.node()
    if node is None:
        raise SessionError("Nothing has been said yet that the model could go on from.")
    if node.kind == "question":
        raise SessionError(f"A tool waits for your answer here. {HOW_TO_ANSWER}")
    if node.role == "assistant" and not node.tool_uses:
        return await say(session, session.settings.auto_prompt)
    return _answered(await session.agent.go_on(node))


@command("answer", "[VALUES…]", "Answer a tool's question: the open one, or the last one anew.")
async def answer(session: Session, values: str = "") -> Outputs:
    """Answer the nearest question at or above the cursor; an answer to it is a branch."""
    walk = await session.walk()
    asked = [node for node in walk.path(session.cursor) if node.kind == "question"]
    if not asked:
        raise SessionError("No tool has asked anything on the way here.")
    node, request = asked[-1], question_of(asked[-1])
    if values:
        reply = read_answer(request, values)
    else:
        reply = await session.world.person.elicit(request, step_id=node.id)
    session.cursor = node.id
    return _answered(await session.agent.answer(node.id, reply))


@command("call", "TOOL [VALUES…]", "Call a tool directly, without a model; so does /TOOL VALUES.")
async def call(session: Session, name: str, values: str = "") -> Outputs:
    """Call a tool as if the model had, and show what it returns."""
    agent = session.agent
    tool = agent.tools.get(name)
    if tool is None:
        known = ", ".join(agent.tools) or "none"
        raise SessionError(f"There is no tool {name!r}. Tools: {known}.")
    arguments = _arguments(tool, values)
    thread = await session.thread(f"/{name} {values}")
    [said] = await agent.put(thread.id, [(session.cursor, f"/{name} {values}".rstrip())])
    use = ToolUseBlock(id=session.world.naming("node"), name=name, input=arguments)
    caller = agent.node(thread.id, said.id, "assistant", (use,), data={"by": "person"})
    await agent.add([caller])
    after = await (await Turn.at(agent, caller)).use_tools(caller)
    path = await agent.store.path(after.id)
    result = path.results[caller.id, use.id]
    return Output("error" if result.is_error else "message", text_of(result.content), after.id)


@command("broadcast", "TEXT…", "Say something where each of the branches below has got to.")
async def broadcast(session: Session, text: str) -> Outputs:
    """Say something at all leaves below the cursor, which stays; at a leaf, that is a message."""
    walk = await session.walk()
    if not walk.children(session.cursor):
        return await say(session, text)
    ends = await broadcast_to_leaves(session.agent, session.thread_id, text, below=session.cursor)
    walk = await session.walk()
    outputs: list[Output] = []
    for end in ends:
        branch = walk.branch_of(end.end.id)
        name = f"[{branch}] " if branch else ""
        if end.error is not None:
            outputs.append(Output("error", f"{name}{end.error}", end.end.id))
        else:
            outputs.append(Output("message", f"{name}{end.text}", end.end.id))
    return outputs


@command("combine_leaves", "[HOW]", "Make one text of what all branches below have come to.")
async def combine_leaves(session: Session, how: str | None = None) -> Outputs:
    """Recombine the leaves below the cursor; the text is said here, without an answer."""
    walk = await session.walk()
    leaves = [node for node in walk.leaves(session.cursor) if _has_answered(node)]
    if len(leaves) < 2:  # noqa: PLR2004 - one text is there already
        raise SessionError(
            f"To combine takes two branches or more that have answered; below are {len(leaves)}."
        )
    if how is None:
        ways = "\n".join(f"{number}. {each}" for number, each in enumerate(MAKERS, 1))
        return Output("system", f"{ways}\n/combine_leaves HOW combines {len(leaves)} leaves.")
    name = MAKERS[number_in(how, MAKERS)] if how.isdigit() else how.lower()
    if name not in MAKERS:
        raise SessionError(f"There is no way {how!r} to combine. Ways: {', '.join(MAKERS)}.")
    made = await combine(session.agent, leaves, name)
    text = f"(combined from {len(leaves)} branches): {made.text}"
    [said] = await session.agent.put(session.thread_id, [(session.cursor, text)])
    return [Output("message", made.text, said.id), Output("system", made.note)]


def read_answer(request: ElicitRequest | UrlRequest, text: str) -> ElicitReply:
    """Return the answer to ``request`` that was typed.

    Raises:
        SessionError: it is none.
    """
    match text.strip():
        case "decline":
            return ElicitReply(action="decline")
        case "cancel":
            return ElicitReply(action="cancel")
        case typed if isinstance(request, UrlRequest):
            if typed == "accept":
                return ElicitReply(action="accept")
            raise SessionError("Write /answer accept, /answer decline or /answer cancel.")
        case typed:
            content = _values(typed, request.requested_schema, HOW_TO_ANSWER)
            return ElicitReply(action="accept", content=content)


def _arguments(tool: AgentTool, values: str) -> dict[str, JsonValue]:
    """Return the arguments for a tool that were typed; if they do not fit, nothing is begun."""
    schema = tool.spec.input_schema
    names = ", ".join(cast("dict[str, JsonValue]", schema.get("properties", {})))
    arguments = _values(
        values or "{}", schema, f"Write /{tool.name} name=value …; names: {names or 'none'}."
    )
    if isinstance(tool, CalledTool):
        tool.tool.validate(arguments)
    return arguments


def _values(text: str, schema: dict[str, JsonValue], usage: str) -> dict[str, JsonValue]:
    try:
        if text.startswith("{"):
            return cast("dict[str, JsonValue]", json.loads(text))
        return read_pairs(split_pairs(text), schema)
    except ValueError as error:
        raise SessionError(f"{str(error).rstrip('.')}. {usage}") from None


def _has_answered(node: Node) -> bool:
    """Whether this is what a model has said to the end: it has not failed, nor was it stopped."""
    whole = node.data.get("stop_reason") not in {INTERRUPTED, "error"}
    return node.kind == "assistant" and whole and bool(node.text.strip())


def _answered(node: Node) -> Output:
    """Return what the model has said in the end."""
    return Output("message", node.text, node.id)

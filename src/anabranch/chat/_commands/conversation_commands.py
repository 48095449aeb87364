"""Commands that run a turn or a tool: /say, /auto, /answer, /call, /broadcast and /combine_leaves."""

from __future__ import annotations

from anabranch.agents import (
    TEXT_RECOMBINERS,
    QuestionExpiredError,
    broadcast_to_leaves,
    combine,
    question_of,
)
from anabranch.chat._commands.command import Command, Outputs
from anabranch.chat._session.session_output import Output, SessionError, result_text
from anabranch.chat._session.session_state import SessionState
from anabranch.chat._session.typed_values import (
    HOW_TO_ANSWER,
    number_in,
    read_answer,
)
from anabranch.chat._turns import UserCall, results_at_end
from anabranch.messages import Block, TextBlock
from anabranch.models import INTERRUPTED
from anabranch.tree import STOPPED, Node, state_of


async def say(session: SessionState, text: str) -> Outputs:
    """Send ``text`` at the cursor with the attached files, and let the model answer."""
    message = await _put(session, text, attaches=True)
    session.unanswered = message.id
    async with session.turn():
        reply = await session.agent.go_on(message)
    session.unanswered = None
    return _reply(reply)


async def _put(session: SessionState, text: str, *, attaches: bool = False) -> Node:
    """Add ``text`` at the cursor without an answer, with the attached files if it ``attaches``."""
    thread = await session.thread(text)
    await session.discard_unanswered()
    files = session.attached if attaches else []
    if files:
        stored = {block.digest or "": data for block, data in files}
        await session.dependencies.store.add_files(thread.id, stored)
    content: list[Block] = [*(block for block, _ in files), TextBlock(text=text)]
    [message] = await session.agent.put(thread.id, [(session.cursor.node_id, content)])
    if attaches:
        session.attached = []
    return message


async def _auto(session: SessionState) -> Outputs:
    """Continue an unfinished turn, or retry a failed one; after a whole reply, send the settings' prompt."""
    walk = await session.cursor.walk()
    node = await session.cursor.node()
    if node is None:
        raise SessionError("The conversation has no message yet that the model can continue from.")
    if node.kind == "question":
        question_of(node)  # raises for a closed question
        raise SessionError(f"A tool waits for your answer here. {HOW_TO_ANSWER}")
    if node.role == "assistant" and not node.tool_uses:
        path = await session.agent.store.path(node.id)
        if node.parent_id is None or state_of(node, walk, path.results) in {"", STOPPED}:
            return await say(session, session.settings.auto_prompt)
        node = walk.nodes[node.parent_id]  # the interrupted reply stays as another version
        session.cursor.node_id = node.id
    async with session.turn():
        return _reply(await session.agent.go_on(node))


async def _answer(session: SessionState, values: str = "") -> Outputs:
    """Answer the nearest question at or above the cursor; each answer starts a branch."""
    cursor = session.cursor
    path = (await cursor.walk()).path(cursor.node_id)
    asked = [node for node in path if node.kind == "question"]
    if not asked:
        raise SessionError("No tool has asked a question between the beginning and here.")
    node, request = asked[-1], question_of(asked[-1])
    if values:
        reply = read_answer(request, values)
    else:
        reply = await session.dependencies.person.elicit(request, step_id=node.id)
    cursor.node_id = node.id
    async with session.turn():
        try:
            return _reply(await session.agent.answer(node.id, reply))
        except QuestionExpiredError as late:
            replies = [_reply(await session.agent.go_on(node))] if late.goes_on else []
            return [Output("error", str(late)), *replies]


async def call(session: SessionState, name: str, values: str = "") -> Outputs:
    """Call a tool as the model does, and return its result."""
    agent, text = session.agent, f"/{name} {values}".rstrip()
    called = UserCall.read(agent, text)
    if called is None:
        known = ", ".join(agent.tools) or "none"
        raise SessionError(f"Unknown tool {name!r}. Tools: {known}.")
    message = await _put(session, text)
    async with session.turn():
        after = await called.run(agent, message)
    [result] = results_at_end(await agent.store.path(after.id))
    if result is None:
        return _reply(after)
    return Output("error" if result.is_error else "message", result_text(result.content), after.id)


async def _broadcast(session: SessionState, text: str) -> Outputs:
    """Send a message at all leaves below the cursor, which stays; at a leaf, send it there."""
    cursor = session.cursor
    if not (await cursor.walk()).children(cursor.node_id):
        return await say(session, text)
    ends = await broadcast_to_leaves(session.agent, cursor.thread_id, text, below=cursor.node_id)
    walk = await cursor.walk()
    outputs: list[Output] = []
    for each in ends:
        branch = walk.branch_of(each.end.id)
        name = f"[{branch}] " if branch else ""
        if each.error is not None:
            outputs.append(Output("error", f"{name}{each.error}", each.end.id))
        else:
            said = f"{name}{each.text}"
            outputs.append(Output("message", said, each.end.id, is_markdown=True))
    return outputs


async def _combine_leaves(session: SessionState, how: str | None = None) -> Outputs:
    """Combine the leaves below the cursor into one message here, without an answer."""
    leaves = (await session.cursor.walk()).leaves(session.cursor.node_id)
    leaves = [node for node in leaves if _is_whole_answer(node)]
    if len(leaves) < 2:  # noqa: PLR2004 - one text is one already
        raise SessionError(
            f"/combine_leaves needs at least two answered branches below, found {len(leaves)}."
        )
    ways = TEXT_RECOMBINERS
    if how is None:
        listed = "\n".join(f"{number}. {each}" for number, each in enumerate(ways, 1))
        return Output("system", f"{listed}\n/combine_leaves HOW combines {len(leaves)} leaves.")
    name = ways[number_in(how, len(ways))] if how.isdigit() else how.lower()
    if name not in ways:
        raise SessionError(f"Unknown way to combine {how!r}. Ways: {', '.join(ways)}.")
    made = await combine(session.agent, leaves, name)
    message = await _put(session, f"(combined from {len(leaves)} branches): {made.text}")
    return [Output("message", made.text, message.id), Output("system", made.note)]


def _is_whole_answer(node: Node) -> bool:
    """Return whether the node is a model's complete answer, neither failed nor stopped."""
    whole = node.data.get("stop_reason") not in {INTERRUPTED, "error"}
    return node.kind == "assistant" and whole and bool(node.text.strip())


def _reply(node: Node) -> Output:
    """Return the last reply of a turn as output."""
    return Output("message", node.text, node.id, is_markdown=True)


CONVERSATION_COMMANDS = (
    Command("say", "TEXT…", "Send a message to the model, like a line without a command.", say),
    Command("auto", "", "Let the model continue alone until it uses no more tools.", _auto),
    Command(
        "answer", "[VALUES…]", "Answer a tool's open question, or the last one again.", _answer
    ),
    Command("call", "TOOL [VALUES…]", "Call a tool without a model; so does /TOOL VALUES.", call),
    Command("broadcast", "TEXT…", "Send a message at the end of each branch below.", _broadcast),
    Command("combine_leaves", "[HOW]", "Make one text of the last answers below.", _combine_leaves),
)

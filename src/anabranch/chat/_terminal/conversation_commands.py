"""Commands that send messages and files, answer questions, call tools, and combine branches."""

from __future__ import annotations

from anyio import to_thread

from anabranch._asking import Absent
from anabranch._text import size_of
from anabranch.agents import (
    TEXT_RECOMBINERS,
    QuestionExpiredError,
    broadcast_to_leaves,
    combine,
    question_of,
)
from anabranch.chat._terminal.session import Command, Outputs, Session
from anabranch.chat._terminal.session_output import Output, SessionError, result_text
from anabranch.chat._terminal.typed_input import HOW_TO_ANSWER, number_in, read_answer, typed_paths
from anabranch.chat._turns import UserCall, is_whole, results_at_end
from anabranch.messages import Block, FileBlock, TextBlock
from anabranch.tree import MOST_BYTES, STOPPED, Node, file_block, state_of, state_of_reply

TOO_LATE = "The time for an answer is over: the tool continues without an answer."


async def say(session: Session, text: str) -> Outputs:
    message = await _put(session, text, attaches=True)
    session.unanswered = message.id
    async with session.turn():
        reply = await session.agent.resume(message)
    session.unanswered = None
    return _reply(reply)


async def _put(session: Session, text: str, *, attaches: bool = False) -> Node:
    thread = await session.thread(text)
    await session.discard_unanswered()
    files = session.attached if attaches else []
    if files:
        stored = {block.digest or "": data for block, data in files}
        await session.store.add_files(thread.id, stored)
    content: list[Block] = [*(block for block, _ in files), TextBlock(text=text)]
    [message] = await session.agent.put(thread.id, [(session.cursor.node_id, content)])
    if attaches:
        session.attached = []
    return message


async def _auto(session: Session) -> Outputs:
    walk = await session.cursor.walk()
    node = await session.cursor.node()
    if node is None:
        raise SessionError("The conversation has no message yet that the model can continue from.")
    if node.kind == "question":
        question_of(node)  # raises for a closed question
        raise SessionError(f"A tool waits for your answer here. {HOW_TO_ANSWER}")
    if node.role == "assistant" and not node.tool_uses:
        path = await session.agent.store.path(node.id)
        if node.parent_id is None or state_of(node, walk, path) in {state_of_reply(node), STOPPED}:
            return await say(session, session.settings.auto_prompt)
        node = walk.nodes[node.parent_id]  # the interrupted reply stays as another version
        session.cursor.node_id = node.id
    async with session.turn():
        return _reply(await session.agent.resume(node))


async def _answer(session: Session, values: str = "") -> Outputs:
    cursor = session.cursor
    path = (await cursor.walk()).path(cursor.node_id)
    asked = [node for node in path if node.kind == "question"]
    if not asked:
        raise SessionError("No tool has asked a question above.")
    node, request = asked[-1], question_of(asked[-1])
    if values:
        reply = read_answer(request, values)
    else:
        user = session.agent.dependencies.user or Absent()
        reply = await user.elicit(request, step_id=node.id)
    cursor.node_id = node.id
    async with session.turn():
        try:
            return _reply(await session.agent.answer(node.id, reply))
        except QuestionExpiredError as late:
            if not late.continues:
                return Output("error", str(late))
            return [Output("error", TOO_LATE), _reply(await session.agent.resume(node))]


async def call(session: Session, name: str, values: str = "") -> Outputs:
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


async def _broadcast(session: Session, text: str) -> Outputs:
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


async def _combine_leaves(session: Session, how: str | None = None) -> Outputs:
    leaves = (await session.cursor.walk()).leaves(session.cursor.node_id)
    leaves = [node for node in leaves if is_whole(node) and node.text.strip()]
    if len(leaves) < 2:  # noqa: PLR2004 - a single text needs no combining
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


def _reply(node: Node) -> Output:
    return Output("message", node.text, node.id, is_markdown=True)


async def _attach(session: Session, typed: str | None = None) -> Outputs:
    if typed is None:
        removed, session.attached = len(session.attached), []
        return Output("system", f"Removed {removed}." if removed else "No file is attached.")
    files = await to_thread.run_sync(_read, typed)
    takes: object = getattr(session.agent.dependencies.model, "takes", None)
    for block, _ in files:
        if callable(takes) and not takes(block.mime_type):
            raise SessionError(
                f"{session.model_name} does not take {block.mime_type}. Try /switch MODEL."
            )
    session.attached += files
    about = ", ".join(f"{each.name} ({each.mime_type}, {size_of(each.size)})" for each, _ in files)
    them = "it" if len(files) == 1 else "them"
    return Output("system", f"Attached {about}. Your next message sends {them}.")


def _read(typed: str) -> list[tuple[FileBlock, bytes]]:
    files: list[tuple[FileBlock, bytes]] = []
    for path in typed_paths(typed):
        try:
            if path.exists() and not path.is_file():  # reading a pipe may never end
                raise SessionError(f"{path} is not a file. Attach a file.")
            with path.open("rb") as file:
                data = file.read(MOST_BYTES + 1)
        except OSError as error:
            raise SessionError(f"Cannot read {path}: {error.strerror}.") from None
        files.append((file_block(data, path.name), data))
    return files


CONVERSATION_COMMANDS = (
    Command("say", "TEXT…", "Send a message to the model, like text without a command.", say),
    Command("auto", "", "Let the model continue until it calls no more tools.", _auto),
    Command(
        "answer", "[VALUES…]", "Answer a tool's open question, or change the last answer.", _answer
    ),
    Command("call", "TOOL [VALUES…]", "Call a tool without the model; same as /TOOL VALUES.", call),
    Command("broadcast", "TEXT…", "Send a message to the end of each branch below.", _broadcast),
    Command(
        "combine_leaves",
        "[HOW]",
        "Combine the last answers of the branches below.",
        _combine_leaves,
    ),
    Command(
        "attach",
        "[FILE…]",
        "Attach files to your next message; without a name, remove attached files.",
        _attach,
    ),
)

"""The loop of a chat at the terminal: reads a line, carries the line out, and shows its output.

Ctrl-C stops a running turn; at the prompt and in a script, it ends the program.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import anyio
from anyio import to_thread
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from anabranch._terminal import Console, LeftError, on_interrupt
from anabranch._text import printable
from anabranch.chat._terminal.chat_screen import ChatScreen
from anabranch.chat._terminal.input_lines import InputLines, ScriptedLines, TypedLines
from anabranch.chat._terminal.replies import NO_MODEL
from anabranch.chat._terminal.session import Session, SessionSettings
from anabranch.chat._terminal.session_commands import COMMANDS, enter
from anabranch.chat._terminal.session_output import SessionError
from anabranch.chat._terminal.typed_input import completed_paths
from anabranch.errors import StoreError
from anabranch.messages import ToolSpec
from anabranch.models import price_of
from anabranch.tree import HEAD, LATEST, Navigator, Node, short_ids

STOPPED = "Stopped by you. The received part is stored."


async def run_lines(
    session: Session,
    screen: ChatScreen,
    lines: InputLines,
    console: Console,
    command: Callable[[str], str | None] = "anabranch chat --thread {}".format,
) -> int:
    """Carry out all lines; return how many failed. ``command`` continues a thread."""
    if isinstance(lines, TypedLines):
        lines.complete_by(LineCompleter(partial(candidates, session)))
    try:
        failed = await _carry_out(session, screen, lines, console)
    except LeftError:
        await _say_how_to_continue(session, console, command)
        raise
    await _say_how_to_continue(session, console, command)
    return failed


async def _carry_out(
    session: Session, screen: ChatScreen, lines: InputLines, console: Console
) -> int:
    failed = 0
    while (line := await _next(session, lines)) is not None:
        if isinstance(lines, ScriptedLines):
            console.say(f"> {line}")
        outputs = None
        with anyio.CancelScope() as turn, on_interrupt(turn.cancel), screen.turn():
            outputs = await enter(session, line)
        if outputs is None:
            screen.end_line()
            console.say(STOPPED)
            await _show_open_question(session, console)
            if isinstance(lines, ScriptedLines):
                raise LeftError
            continue
        screen.show(outputs)
        failed += any(output.type == "error" for output in outputs)
        if any(output.action == "exit" for output in outputs):
            break
    return failed


async def _show_open_question(session: Session, console: Console) -> None:
    # The next line reports a failure here, if the failure persists.
    with suppress(StoreError, SessionError):
        node = await session.cursor.node()
        if node is not None and node.kind == "question":
            console.say((await session.cursor.here())[-1].content)


async def _say_how_to_continue(
    session: Session, console: Console, command: Callable[[str], str | None]
) -> None:
    thread_id = session.cursor.thread_id
    again = command(thread_id)
    if again and await session.store.thread(thread_id) is not None:
        console.say(f"To continue: {again}")


async def _next(session: Session, lines: InputLines) -> str | None:
    if isinstance(lines, TypedLines):
        lines.status = await status_line(session)
    return await lines.next(await _prompt(session, lines))


async def status_line(session: Session) -> str:
    thread_id, node_id = session.cursor.thread_id, session.cursor.node_id
    model = session.model_name.rpartition("/")[2]  # the line is short
    parts = ["no model" if model == NO_MODEL else model, short_ids([thread_id])[thread_id]]
    walk = await _look(session)
    if walk is None or node_id is None or node_id not in walk.nodes:
        return " · ".join([*parts, "at the beginning"])
    path = walk.path(node_id)
    place = walk.branch_of(node_id) or "main line"
    labels = ", ".join(walk.labels.get(node_id, ()))
    parts.append(f"{place} ({labels})" if labels else place)
    tokens = sum(node.usage.total_tokens for node in path if node.usage is not None)
    parts += [f"{tokens:,} tokens"] if tokens else []
    costs = [cost for node in path if (cost := _cost(node)) is not None]
    parts += [f"${sum(costs):.4f}"] if costs else []
    return " · ".join(parts)


async def _look(session: Session) -> Navigator | None:
    try:
        return await session.cursor.look()
    except StoreError:  # the next line reports it, if the store still fails then
        return None


def _cost(node: Node) -> float | None:
    model = node.data.get("model")
    if node.usage is None or not isinstance(model, str):
        return None
    return price_of(model, node.usage)


async def _prompt(session: Session, lines: InputLines) -> str:
    if isinstance(lines, ScriptedLines) or session.cursor.node_id is None:
        return "> "
    walk = await _look(session)
    branch = walk.branch_of(session.cursor.node_id) if walk is not None else None
    return f"{branch or ''}> "


class LineCompleter(Completer):
    def __init__(self, candidates: Callable[[str], Awaitable[list[str]]]) -> None:
        self._candidates = candidates

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        """Return nothing: the store is read asynchronously."""
        del document, complete_event
        return ()

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        del complete_event
        typed = document.text_before_cursor
        word = typed.rpartition(" ")[2]
        try:
            found = await self._candidates(typed)
        except (StoreError, SessionError):  # the next line reports it
            return
        for each in found:
            if each.startswith(word) and each != word:
                yield Completion(each, -len(word), display=printable(each))


async def candidates(session: Session, typed: str) -> list[str]:
    name, space, rest = typed.partition(" ")
    tools = {name: tool.spec for name, tool in session.agent.tools.items()}
    if name == "/call" and space:
        return _of_tools((), tools, f"/{rest}") if " " in rest else list(tools)
    if space and name[1:] in COMMANDS and name.startswith("/"):
        if "FILE" in COMMANDS[name[1:]].usage:
            start = rest.rfind(" ") + 1
            return [path[start:] for path in await to_thread.run_sync(completed_paths, rest)]
        if " " not in rest:
            return await _names(session, name[1:])
        is_setting = name == "/config" and rest.startswith("set ") and rest.count(" ") == 1
        return list(SessionSettings.model_fields) if is_setting else []
    return _of_tools(COMMANDS, tools, typed)


def _of_tools(commands: Iterable[str], tools: Mapping[str, ToolSpec], typed: str) -> list[str]:
    name, space, rest = typed.partition(" ")
    if not name.startswith("/"):
        return []
    if not space:
        return [f"/{each}" for each in (*commands, *tools)]
    return _arguments(tools[name[1:]], rest) if name[1:] in tools else []


async def _names(  # noqa: PLR0911 - a case for each command
    session: Session, command: str
) -> list[str]:
    match command:
        case "label" | "unlabel" | "fork":
            walk = await session.cursor.look()
            if walk is None:
                return []
            labels = [name for name in walk.tree.refs if name != HEAD]
            branches = sorted({name for name in walk.branches.values() if name})
            return [*labels, *(branches if command == "fork" else ())]
        case "thread":
            threads = await session.store.threads_of(None, 50)
            return [LATEST, *(each.id for each in threads)]
        case "switch" | "models":
            return list(session.models.names()) if session.models is not None else []
        case "help":
            return list(COMMANDS)
        case "config":
            return ["set"]
        case _:
            return []


def _arguments(tool: ToolSpec, rest: str) -> list[str]:
    """Return parameters that ``rest`` does not give, or values for the last one."""
    properties: Any = tool.input_schema.get("properties", {})
    name, equals, _ = rest.rpartition(" ")[2].partition("=")
    if equals:
        return [f"{name}={value}" for value in _values(properties.get(name, {}))]
    return [f"{each}=" for each in properties if f"{each}=" not in rest]


def _values(field: Mapping[str, Any] | bool) -> list[str]:  # noqa: FBT001 - JSON Schema has both
    if isinstance(field, bool):
        return []
    if field.get("type") == "boolean":
        return ["true", "false"]
    return [str(each) for each in field.get("enum", ())]

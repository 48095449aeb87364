"""Completes lines in a chat: commands, labels, branches, files, tools and their arguments."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from typing import Any

from anyio import to_thread
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from anabranch._text import printable
from anabranch.chat._chat_session import Session
from anabranch.chat._commands.command_table import COMMANDS
from anabranch.chat._session.session_dependencies import SessionSettings
from anabranch.chat._session.session_output import SessionError
from anabranch.chat._session.typed_paths import completed_paths
from anabranch.errors import StoreError
from anabranch.messages import ToolSpec
from anabranch.tree import HEAD, LATEST

MAX_THREADS = 50


class LineCompleter(Completer):
    """Completes the last typed word with the result of ``candidates``."""

    def __init__(self, candidates: Callable[[str], Awaitable[list[str]]]) -> None:
        self._candidates = candidates

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        """Return nothing, because the candidates are in a store that is read asynchronously."""
        del document, complete_event
        return ()

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        """Yield the completions of the word before the cursor."""
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
    """Return the candidates for the last word of ``typed`` in a session."""
    name, space, rest = typed.partition(" ")
    tools = {name: tool.spec for name, tool in session.state.agent.tools.items()}
    if name == "/call" and space:
        return _of_tools((), tools, f"/{rest}") if " " in rest else list(tools)
    if space and name[1:] in COMMANDS and name.startswith("/"):
        if "FILE" in COMMANDS[name[1:]].usage:
            start = rest.rfind(" ") + 1
            return [path[start:] for path in await to_thread.run_sync(completed_paths, rest)]
        return await _names(session, name[1:]) if " " not in rest else _settings(name, rest)
    return _of_tools(COMMANDS, tools, typed)


def _of_tools(commands: Iterable[str], tools: Mapping[str, ToolSpec], typed: str) -> list[str]:
    """Return the candidates for a line that calls a tool, or that starts one of ``commands``."""
    name, space, rest = typed.partition(" ")
    if not name.startswith("/"):
        return []
    if not space:
        return [f"/{each}" for each in (*commands, *tools)]
    return _arguments(tools[name[1:]], rest) if name[1:] in tools else []


async def _names(  # noqa: PLR0911 - a case for each command
    session: Session, command: str
) -> list[str]:
    """Return the candidates for the first argument of a command."""
    dependencies = session.state.dependencies
    match command:
        case "label" | "unlabel" | "fork":
            walk = await session.cursor.look()
            if walk is None:
                return []
            labels = [name for name in walk.tree.refs if name != HEAD]
            branches = sorted({name for name in walk.branches.values() if name})
            return [*labels, *(branches if command == "fork" else ())]
        case "thread":
            return [
                LATEST,
                *(each.id for each in await dependencies.store.threads_of(None, MAX_THREADS)),
            ]
        case "switch" | "models":
            return list(dependencies.models.names()) if dependencies.models is not None else []
        case "help":
            return list(COMMANDS)
        case "config":
            return ["set"]
        case _:
            return []


def _settings(name: str, rest: str) -> list[str]:
    if name == "/config" and rest.startswith("set ") and rest.count(" ") == 1:
        return list(SessionSettings.model_fields)
    return []


def _arguments(tool: ToolSpec, rest: str) -> list[str]:
    """Return the parameters without a value, or the values for the parameter being typed."""
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

"""``anabranch chat``: a session at the terminal, or led by a script.

This module opens the store, the tools and the model that the options name. Running the session is
done in :mod:`anabranch.chat`.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from platformdirs import user_data_path

from anabranch._terminal.console import Console
from anabranch._terminal.exits import FailedError, UsageError
from anabranch._terminal.respondent import Respondent
from anabranch.agents import AgentTool, BranchSelf
from anabranch.chat import COMMANDS, SavedPrompts, Session, SessionDependencies
from anabranch.chat._terminal_session.chat_answerer import ChatAnswerer
from anabranch.chat._terminal_session.chat_models import ChatModels, NoModel
from anabranch.chat._terminal_session.chat_screen import ChatScreen
from anabranch.chat._terminal_session.input_lines import (
    InputLines,
    ScriptedLines,
    TypedLines,
    piped_lines,
    read_script,
)
from anabranch.chat._terminal_session.line_loop import run_lines
from anabranch.cli._store_option import store_url
from anabranch.cli._targets import is_url, load
from anabranch.errors import StoreError
from anabranch.models import ModelError
from anabranch.stores import open_tree_store
from anabranch.tool import Tool
from anabranch.tree import TreeStore

__all__ = ["ChatWish", "chat", "tools_of"]

LATEST = "last"


@dataclass(frozen=True, slots=True)
class ChatWish:
    """What a chat is to be, as it was typed.

    Attributes:
        targets: where its tools are.
        thread: the thread to begin in; ``last`` for the latest.
        at: the node to begin at.
        store: the store's URL.
        model: the model's name.
        script: the file that leads it.
    """

    targets: Sequence[str] = ()
    thread: str | None = None
    at: str | None = None
    store: str | None = None
    model: str | None = None
    script: Path | None = None


async def chat(wish: ChatWish, tools: Sequence[Tool[Any] | AgentTool], console: Console) -> None:
    """Lead a conversation until there are no more lines.

    Raises:
        CommandError: it cannot begin, a line of a script has failed, or the person has left.
    """
    lines = _lines(wish, console, [tool.name for tool in tools])
    try:
        store = open_tree_store(store_url(wish.store))
    except StoreError as error:
        raise UsageError(str(error)) from error
    screen = ChatScreen(console)
    try:
        dependencies = _dependencies(wish, tools, console, lines, store, screen)
        session = await _session(wish, dependencies, screen)
        failed = await run_lines(session, screen, lines, console)
    except StoreError as error:
        raise FailedError(str(error)) from error
    finally:
        with anyio.CancelScope(shield=True):
            await store.close()
    if failed and isinstance(lines, ScriptedLines):
        raise FailedError(f"{failed} of the lines failed.")


def tools_of(targets: Sequence[str]) -> list[Tool[Any] | AgentTool]:
    """Return the tools of a chat: ``branch_self``, and those found in the targets.

    Raises:
        UsageError: a target cannot be loaded, offers no tool, or two have the same name.
    """
    running = next(filter(is_url, targets), None)
    if running is not None:
        raise UsageError(f"{running} is a server. A chat takes its tools from files and modules.")
    found = load(targets)
    if targets and not found.tools:
        raise UsageError(f"{' '.join(targets)} has no @tool and no HandoffTool for a chat.")
    tools: list[Tool[Any] | AgentTool] = [BranchSelf(), *found.tools]
    twice = [name for name, count in Counter(tool.name for tool in tools).items() if count > 1]
    if twice:
        raise UsageError(f"Two tools are called {twice[0]}. Take one of them away.")
    return tools


def _lines(wish: ChatWish, console: Console, tools: Sequence[str]) -> InputLines:
    if wish.script is not None and str(wish.script) != "-":
        return read_script(wish.script)
    if not console.interactive or wish.script is not None:
        return piped_lines(sys.stdin.fileno())
    words = [f"/{name}" for name in (*COMMANDS, *tools)]
    return TypedLines(console.stream, words, _data() / "chat_history")


def _dependencies(
    wish: ChatWish,
    tools: Sequence[Tool[Any] | AgentTool],
    console: Console,
    lines: InputLines,
    store: TreeStore,
    screen: ChatScreen,
) -> SessionDependencies:
    models = ChatModels()
    respondent = Respondent(console)
    try:
        model = models.open(wish.model) if wish.model else NoModel(respondent)
    except ModelError as error:
        raise UsageError(str(error)) from error
    return SessionDependencies(
        store,
        model,
        model_name=wish.model or "none",
        tools=tools,
        person=ChatAnswerer(console, respondent, lines),
        listener=screen.on_event,
        models=models,
        prompts=SavedPrompts(_data() / "prompts.json"),
    )


async def _session(
    wish: ChatWish, dependencies: SessionDependencies, screen: ChatScreen
) -> Session:
    """Begin where the wish says.

    Raises:
        UsageError: there is no such place.
    """
    thread = wish.thread
    if thread == LATEST:
        latest = await dependencies.store.threads(1)
        if not latest:
            raise UsageError("There is no conversation yet. Leave out --thread to begin one.")
        thread = latest[0].id
    session = Session(dependencies, thread_id=thread)
    screen.attach(session)
    outputs = await session.start()
    if wish.at is not None:
        outputs = await session.input(f"/fork {wish.at}")
        if any(output.type == "error" for output in outputs):
            raise UsageError(outputs[-1].content)
    screen.show_beginning(outputs)
    return session


def _data() -> Path:
    return user_data_path("anabranch", appauthor=False)

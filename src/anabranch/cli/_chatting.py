"""A chat session at the terminal, or driven by a script: the work of ``anabranch chat``.

This module opens the store, the tools and the model that the options name. The session itself runs in
``anabranch.chat``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import anyio

from anabranch._aio import cancel_and_wait, run_shielded
from anabranch._terminal import Console, FailedError, Respondent, UsageError
from anabranch.agents import Folding, TurnLimits, ignore_event
from anabranch.agents._turn_limits import of_tools
from anabranch.chat import Session, SessionDependencies
from anabranch.chat._terminal_session.chat_answerer import ChatAnswerer, ChatModels, NoModel
from anabranch.chat._terminal_session.chat_screen import ChatScreen
from anabranch.chat._terminal_session.input_lines import InputLines, ScriptedLines, TypedLines
from anabranch.chat._terminal_session.line_loop import run_lines
from anabranch.cli._answering import open_sampler
from anabranch.cli._chat_parts import (
    ChatOptions,
    command_to_go_on,
    lines_of,
    replies_to,
)
from anabranch.cli._chat_tools import ChatTool, connected
from anabranch.cli._folding import open_branches
from anabranch.cli._memory import learning, open_bank
from anabranch.cli._options import store_url
from anabranch.cli._output import print_text
from anabranch.engines import InProcessEngine
from anabranch.errors import StoreError
from anabranch.memory import memory_tools
from anabranch.models import ModelError
from anabranch.stores import CallStore, open_stores
from anabranch.tree import LATEST, AmbiguousIdError, TreeStore, find_thread

SHORT = "anabranch chat --thread {}"
"""What a script is shown instead of the whole command to go on."""


async def chat(options: ChatOptions, tools: Sequence[ChatTool], console: Console) -> None:
    """Run a session until there are no more lines.

    Raises:
        CommandError: if the session cannot start, a line of a script fails, or the user leaves.
    """
    learner = open_sampler(options.model) if options.memory else None
    try:
        calls, store = open_stores(store_url(options.store))
    except StoreError as error:
        raise UsageError(str(error)) from error
    try:
        bank = open_bank(store) if options.memory or options.folding else None
        if bank is not None and options.memory:
            tools = [*tools, *memory_tools(bank)]
        if options.folding:
            branches = open_branches(store, bank, learns=learner is not None)
            tools = [*tools, Folding(branches)]
        async with connected(tools), learning(bank, learner):
            await _chat(options, tools, console, (calls, store))
    finally:
        await run_shielded(store.close())


async def _chat(
    options: ChatOptions,
    tools: Sequence[ChatTool],
    console: Console,
    stores: tuple[CallStore, TreeStore],
) -> None:
    asks = options.prompt is None or console.interactive
    lines = lines_of(options.script, console) if asks else ScriptedLines()
    replies = replies_to(lines, console)
    screen = ChatScreen(console, replies)
    expiring: list[asyncio.Task[Any]] = []
    try:
        dependencies = _dependencies(
            options, tools, console, lines, stores, screen, replies.columns
        )
        session = await _session(options, dependencies, screen)
        agent = session.state.agent
        if excess := agent.tools.excess(dependencies.model):
            console.say(excess)
        jobs = [agent.expire_calls(), *agent.tools.tended(InProcessEngine())]
        expiring += map(asyncio.ensure_future, jobs)
        if options.prompt is not None:
            await _answer(session, options.prompt)
            return
        typed = isinstance(lines, TypedLines)
        command = partial(command_to_go_on, options) if typed else SHORT.format
        failed = await run_lines(session, screen, lines, console, command)
    except StoreError as error:
        raise FailedError(str(error)) from error
    finally:
        with anyio.CancelScope(shield=True):
            await cancel_and_wait(expiring)
    if failed and isinstance(lines, ScriptedLines):
        raise FailedError(f"{failed} of the lines failed.")


async def _answer(session: Session, prompt: str) -> None:
    """Say ``prompt``, and print the answer alone.

    Raises:
        FailedError: if there is no answer.
    """
    answer = (await session.say(prompt))[-1]
    if answer.type == "error":
        raise FailedError(answer.content)
    print_text(answer.content)


def _dependencies(
    options: ChatOptions,
    tools: Sequence[ChatTool],
    console: Console,
    lines: InputLines,
    stores: tuple[CallStore, TreeStore],
    screen: ChatScreen,
    columns: Callable[[], int] | None,
) -> SessionDependencies:
    models = ChatModels()
    respondent = Respondent(console)
    try:
        model = models.open(options.model) if options.model else NoModel(respondent)
    except ModelError as error:
        raise UsageError(str(error)) from error
    calls, store = stores
    return SessionDependencies(
        store,
        model,
        model_name=options.model or "none",
        tools=tools,
        person=ChatAnswerer(console, respondent, lines, screen.place_of),
        listener=ignore_event if options.prompt else screen.on_event,
        models=models,
        calls=calls,
        limits=TurnLimits.of(options.limits),
        tool_limits=of_tools(options.limits),
        system_prompt=options.system,
        columns=columns,
    )


async def _thread_id(store: TreeStore, name: str) -> str:
    """Return the id of the thread ``name``; start the thread if it does not exist.

    Raises:
        UsageError: if several ids begin with ``name``, the thread has an owner, or there is no latest.
    """
    try:
        found = await find_thread(store, name, without_owner=True)
    except AmbiguousIdError as error:
        raise UsageError(str(error)) from error
    if found is None and name == LATEST:
        raise UsageError("There is no conversation yet. Leave out --thread to begin one.")
    if found is None and await store.thread(name) is not None:
        raise UsageError(
            f"The conversation {name!r} belongs to somebody who uses a web application, and is not"
            f" continued here. anabranch tree show {name} shows it; give another --thread."
        )
    return found or name


async def _session(
    options: ChatOptions, dependencies: SessionDependencies, screen: ChatScreen
) -> Session:
    """Return a session that continues the thread of the options, at their node.

    Raises:
        UsageError: if there is no such thread or node.
    """
    thread = options.thread
    if thread is not None:
        thread = await _thread_id(dependencies.store, thread)
        begun = await dependencies.store.thread(thread)
        if options.system is not None and begun is not None:
            raise UsageError(f"The conversation {thread} has begun. Leave out --system.")
    session = Session(dependencies, thread_id=thread)
    screen.attach(session)
    outputs = await session.start()
    if options.at is not None:
        outputs = await session.input(f"/fork {options.at}")
        if any(output.type == "error" for output in outputs):
            raise UsageError(outputs[-1].content)
    if options.prompt is None:
        screen.show_beginning(outputs)
    return session

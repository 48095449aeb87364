"""A chat session at the terminal, or driven by a script: the work of ``anabranch chat``."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from anabranch._aio import cancel_and_wait
from anabranch._terminal import (
    Console,
    FailedError,
    Respondent,
    UsageError,
    failing_as,
    is_drawable,
)
from anabranch.agents import Agent, ignore_event
from anabranch.chat import (
    ChatAnswerer,
    ChatScreen,
    InputLines,
    LiveReplies,
    Plugin,
    Replies,
    ScriptedLines,
    Session,
    TypedLines,
    enter,
    piped_lines,
    read_script,
    run_lines,
    send,
)
from anabranch.cli._answering import open_sampler
from anabranch.cli._chat_parts import ChatModels, ChatParts, OfferedTool, WithoutModel, parts_around
from anabranch.cli._option_groups import AgentOptions
from anabranch.cli._options import MODEL, STORE, data_folder, store_url
from anabranch.cli._output import print_text
from anabranch.errors import StoreError
from anabranch.tree import LATEST, AmbiguousIdError, TreeStore, find_thread, state_of_reply


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """The options of a chat that the user has typed."""

    targets: Sequence[str] = ()
    thread: str | None = None
    at: str | None = None
    script: Path | None = None
    system: str | None = None
    prompt: str | None = None
    agent: AgentOptions = AgentOptions()


def lines_of(script: Path | None, console: Console) -> InputLines:
    if script is not None and str(script) != "-":
        return read_script(script)
    if not console.interactive or script is not None:
        return piped_lines(sys.stdin.fileno())
    return TypedLines(console.stream, data_folder() / "chat_history")


def command_to_continue(options: ChatOptions, thread_id: str) -> str | None:
    """Return the command that continues a thread; ``None`` for a thread in memory.

    The values of headers and variables are left out, as they may be secrets.
    """
    agent, turn = options.agent, options.agent.turn
    if store_url(agent.store).startswith("memory:"):
        return None
    words = ["anabranch", "chat", *options.targets, "--thread", thread_id]
    for name, given, variable in (("--store", agent.store, STORE), ("--model", agent.model, MODEL)):
        if given is not None and given != os.environ.get(variable):
            words += [name, given]
    for header in turn.header or ():
        words += ["--header", f"{header.partition(':')[0]}: …"]
    for variable in turn.env or ():
        name, equals, _ = variable.partition("=")
        words += ["--env", f"{name}=…" if equals else name]
    for name, value in asdict(turn.limits()).items():
        if value is not None:
            words += [f"--{name.replace('_', '-')}", f"{value:g}"]
    words += ["--folding"] if turn.folding else []
    words += ["--memory"] if turn.memory else []
    return shlex.join(words)


async def chat(options: ChatOptions, tools: Sequence[OfferedTool], console: Console) -> None:
    respondent = Respondent(console)
    model = open_sampler(options.agent.model, cache=True) or WithoutModel(respondent)
    parts = parts_around(tools, model, options.agent)
    async with parts.open():
        await _chat(options, parts, console, respondent)


async def _chat(
    options: ChatOptions, parts: ChatParts, console: Console, respondent: Respondent
) -> None:
    asks = options.prompt is None or console.interactive
    lines = lines_of(options.script, console) if asks else ScriptedLines()
    live = isinstance(lines, TypedLines) and is_drawable(sys.stdout)
    replies = LiveReplies(console) if live else Replies()
    screen = ChatScreen(console, replies)
    answerer = ChatAnswerer(console, respondent, lines, screen.place_of)
    expiring: list[asyncio.Task[Any]] = []
    try:
        agent = _agent(options, parts, answerer, screen)
        session = await _session(options, agent, screen, replies.columns)
        if excess := agent.tools.excess(parts.model):
            console.say(excess)
        jobs = [agent.expire_calls(), *agent.tools.tended()]
        expiring += map(asyncio.ensure_future, jobs)
        if options.prompt is not None:
            await _answer(session, options.prompt, console)
            return
        command = partial(command_to_continue, options)
        failed = await run_lines(session, screen, lines, console, command)
    except StoreError as error:
        raise FailedError(str(error)) from error
    finally:
        with anyio.CancelScope(shield=True):
            await cancel_and_wait(expiring)
    if failed and isinstance(lines, ScriptedLines):
        raise FailedError(f"{failed} of the lines failed.")


async def _answer(session: Session, prompt: str, console: Console) -> None:
    answer = (await send(session, prompt))[-1]
    if answer.type == "error":
        raise FailedError(answer.content)
    print_text(answer.content)
    node = await session.cursor.node()
    if node is not None and (state := state_of_reply(node)):
        console.say(f"({state})")


def _agent(options: ChatOptions, parts: ChatParts, user: ChatAnswerer, screen: ChatScreen) -> Agent:
    # A terminal shows all questions as forms, under the rules of their tools' plugins.
    tools = [
        tool
        for each in parts.tools
        for tool in (each.server.tools if isinstance(each, Plugin) else [each])
    ]
    return Agent(
        parts.trees,
        parts.model,
        tools=tools,
        user=user,
        limits=parts.limits,
        tool_limits=parts.tool_limits,
        listener=ignore_event if options.prompt else screen.on_event,
        calls=parts.calls,
    )


async def _thread_id(store: TreeStore, name: str) -> str:
    with failing_as(UsageError, AmbiguousIdError):
        found = await find_thread(store, name, without_owner=True)
    if found is None and name == LATEST:
        raise UsageError("There is no conversation yet. Leave out --thread to start one.")
    if found is None and await store.thread(name) is not None:
        raise UsageError(
            f"The conversation {name!r} belongs to a user of a web application, and cannot be"
            f" continued here. anabranch tree show {name} shows it; give another --thread."
        )
    return found or name


async def _session(
    options: ChatOptions, agent: Agent, screen: ChatScreen, columns: Callable[[], int] | None
) -> Session:
    thread = options.thread
    if thread is not None:
        thread = await _thread_id(agent.store, thread)
        begun = await agent.store.thread(thread)
        if options.system is not None and begun is not None:
            raise UsageError(f"The conversation {thread} already exists. Leave out --system.")
    session = Session(
        agent,
        thread_id=thread,
        model_name=options.agent.model or "none",
        models=ChatModels(),
        system_prompt=options.system,
        columns=columns,
    )
    screen.attach(session)
    outputs = await session.start()
    if options.at is not None:
        outputs = await enter(session, f"/fork {options.at}")
        if any(output.type == "error" for output in outputs):
            raise UsageError(outputs[-1].content)
    if options.prompt is None:
        screen.show_beginning(outputs)
    return session

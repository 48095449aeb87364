"""``anabranch chat --url``: the terminal as a client of a chat's server."""

from __future__ import annotations

import os
import secrets
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import urlsplit

from anabranch._terminal.console import Console
from anabranch._terminal.exits import FailedError, UsageError
from anabranch._terminal.interrupts import run_command
from anabranch._terminal.respondent import Respondent
from anabranch.chat import ChatClient, ChatClientError
from anabranch.chat._terminal_session.chat_answerer import ChatAnswerer
from anabranch.chat._terminal_session.completions import LineCompleter, of_tools
from anabranch.chat._terminal_session.input_lines import ScriptedLines, TypedLines
from anabranch.chat._terminal_session.remote_lines import LEAVING, RemoteLines
from anabranch.chat._terminal_session.remote_screen import RemoteScreen
from anabranch.cli._chat_options import ChatOptions, lines_of, replies_to
from anabranch.cli._options import MODEL, STORE
from anabranch.limits import UNLIMITED
from anabranch.messages import ToolSpec
from anabranch.tree import LATEST, short_ids

__all__ = ["chat_at_url"]


def chat_at_url(url: str, token: str | None, options: ChatOptions) -> None:
    """Chat with the server at ``url`` until there are no more lines.

    Raises:
        CommandError: it cannot begin, a line of a script failed, or the person left.
    """
    _check(options)
    run_command(_chat, url, token, options, Console())


def _check(options: ChatOptions) -> None:
    """Refuse what only a chat of one's own can have.

    Raises:
        UsageError: there is some.
    """
    typed = {
        "A target": options.targets,
        "--at": options.at,
        "--store": options.store != os.environ.get(STORE) and options.store,
        "--model": options.model != os.environ.get(MODEL) and options.model,
        "A limit": options.limits != UNLIMITED,
        "--system": options.system is not None,
        "--prompt": options.prompt is not None,
        "--memory": options.memory,
    }
    for name, given in typed.items():
        if given:
            raise UsageError(f"{name} is up to the server. Leave it out, or leave out --url.")
    if options.thread == LATEST:
        raise UsageError("With --url, give --thread the thread's id.")


async def _chat(url: str, token: str | None, options: ChatOptions, console: Console) -> None:
    try:
        tools = await ChatClient(url, token=token).tools()
    except ValueError as error:
        raise UsageError(str(error)) from error
    except ChatClientError as error:
        raise FailedError(str(error)) from error
    shown = urlsplit(url)._replace(query="", fragment="").geturl()
    thread = options.thread or f"thread_{secrets.token_urlsafe(9)}"
    lines = lines_of(options.script, console)
    if isinstance(lines, TypedLines):
        lines.complete_by(LineCompleter(_candidates({tool.name: tool for tool in tools})))
        lines.status = f"{shown} · {short_ids([thread])[thread]}"
    screen = RemoteScreen(console, replies_to(lines, console))
    answerer = ChatAnswerer(console, Respondent(console), lines)
    async with ChatClient(url, token=token, otherwise=answerer) as client:
        chat = RemoteLines(client, thread, lines, console, screen)
        failed = await chat.run(answers_first=options.thread is not None)
    console.say(f"To go on: anabranch chat --url {shown} --thread {thread}")
    if failed and isinstance(lines, ScriptedLines):
        raise FailedError(f"{failed} of the lines failed.")


def _candidates(tools: Mapping[str, ToolSpec]) -> Callable[[str], Awaitable[list[str]]]:
    """Return what completes a line: the server's tools are all that is known of it here."""

    async def candidates(typed: str) -> list[str]:
        return of_tools((each[1:] for each in LEAVING), tools, typed)

    return candidates

"""``anabranch chat --url``: the terminal as a client of a chat's server."""

from __future__ import annotations

import os
import secrets
from urllib.parse import urlsplit

from anabranch._terminal.console import Console
from anabranch._terminal.exits import FailedError, UsageError
from anabranch._terminal.interrupts import run_command
from anabranch._terminal.respondent import Respondent
from anabranch.chat import ChatClient, ChatClientError
from anabranch.chat._terminal_session.chat_answerer import ChatAnswerer
from anabranch.chat._terminal_session.input_lines import ScriptedLines
from anabranch.chat._terminal_session.remote_lines import LEAVING, RemoteLines
from anabranch.cli._chat_options import ChatOptions, lines_of
from anabranch.cli._options import MODEL, STORE
from anabranch.limits import UNLIMITED
from anabranch.tree import LATEST

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
    words = [*LEAVING, *(f"/{tool.name}" for tool in tools)]
    lines = lines_of(options.script, console, words)
    answerer = ChatAnswerer(console, Respondent(console), lines)
    thread = options.thread or f"thread_{secrets.token_urlsafe(9)}"
    async with ChatClient(url, token=token, otherwise=answerer) as client:
        chat = RemoteLines(client, thread, lines, console)
        failed = await chat.run(answers_first=options.thread is not None)
    shown = urlsplit(url)._replace(query="", fragment="").geturl()
    console.say(f"To go on: anabranch chat --url {shown} --thread {thread}")
    if failed and isinstance(lines, ScriptedLines):
        raise FailedError(f"{failed} of the lines failed.")

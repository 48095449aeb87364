"""``anabranch chat --url``: the terminal as a client of a chat's server."""

from __future__ import annotations

import os
import secrets
import shlex
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from urllib.parse import quote, urlsplit

import anyio

from anabranch._budget import UNLIMITED
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
from anabranch.cli._chat_parts import ChatOptions, lines_of, replies_to
from anabranch.cli._options import MODEL, STORE
from anabranch.cli._output import print_either
from anabranch.messages import ToolSpec
from anabranch.tree import LATEST, short_ids


def chat_at_url(url: str, token: str | None, options: ChatOptions, *, as_json: bool) -> None:
    """Chat with the server at ``url`` until there are no more lines, or leave one message there.

    Raises:
        CommandError: it cannot begin, a line of a script failed, or the person left.
    """
    _check(options)
    if options.prompt is None:
        run_command(_chat, url, token, options, Console())
        return
    left = run_command(leave, url, token, options, options.prompt, Console())
    print_either(left, [left["page"], f"To look again: {left['command']}"], as_json=as_json)


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
        "--memory": options.memory,
    }
    for name, given in typed.items():
        if given:
            raise UsageError(f"{name} is up to the server. Leave it out, or leave out --url.")
    if options.prompt is not None and not options.detach:
        raise UsageError("With --url, --prompt needs --detach: the message is left at the server.")
    if options.thread == LATEST:
        raise UsageError("With --url, give --thread the thread's id.")


async def _chat(url: str, token: str | None, options: ChatOptions, console: Console) -> None:
    with _refusals():
        tools = await ChatClient(url, token=token).tools()
    shown, thread = _without_token(url), _thread(options)
    lines = lines_of(options.script, console)
    if isinstance(lines, TypedLines):
        lines.complete_by(LineCompleter(_candidates({tool.name: tool for tool in tools})))
        lines.status = f"{shown} · {short_ids([thread])[thread]}"
    screen = RemoteScreen(console, replies_to(lines, console))
    answerer = ChatAnswerer(console, Respondent(console), lines)
    async with ChatClient(url, token=token, otherwise=answerer) as client:
        chat = RemoteLines(client, thread, lines, console, screen)
        failed = await chat.run(answers_first=options.thread is not None)
    console.say(f"To go on: {_command(shown, thread)}")
    if failed and isinstance(lines, ScriptedLines):
        raise FailedError(f"{failed} of the lines failed.")


async def leave(
    url: str, token: str | None, options: ChatOptions, prompt: str, console: Console
) -> dict[str, str]:
    """Say ``prompt``, and return where the answer will be.

    Where the server has no room for it just now, it is said once more when the server wants it.

    Raises:
        UsageError: the address or the thread cannot be one.
        FailedError: the server cannot be reached, or refuses the message.
    """
    shown, thread = _without_token(url), _thread(options)
    with _refusals():
        client = ChatClient(url, token=token)
        try:
            run = await client.begin(thread, prompt)
        except ChatClientError as error:
            if error.retry_after is None:
                raise
            console.say(f"{error}\nIt is sent again in {error.retry_after:g} s.")
            await anyio.sleep(error.retry_after)
            run = await client.begin(thread, prompt)
    page = f"{shown}?thread={quote(thread, safe='')}"
    return {"thread": thread, "run": run, "page": page, "command": _command(shown, thread)}


@contextmanager
def _refusals() -> Generator[None]:
    """Have the command end with what a client of the server raises in the block."""
    try:
        yield
    except ValueError as error:
        raise UsageError(str(error)) from error
    except ChatClientError as error:
        raise FailedError(str(error)) from error


def _without_token(url: str) -> str:
    return urlsplit(url)._replace(query="", fragment="").geturl()


def _thread(options: ChatOptions) -> str:
    return options.thread or f"thread_{secrets.token_urlsafe(9)}"


def _command(shown: str, thread: str) -> str:
    return shlex.join(["anabranch", "chat", "--url", shown, "--thread", thread])


def _candidates(tools: Mapping[str, ToolSpec]) -> Callable[[str], Awaitable[list[str]]]:
    """Return what completes a line: the server's tools are all that is known of it here."""

    async def candidates(typed: str) -> list[str]:
        return of_tools((each[1:] for each in LEAVING), tools, typed)

    return candidates

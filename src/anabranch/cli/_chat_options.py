"""The options of a chat as they were typed, and the source of its lines."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from platformdirs import user_data_path

from anabranch._budget import UNLIMITED, Limits
from anabranch._terminal.console import Console
from anabranch.chat._terminal_session.input_lines import (
    InputLines,
    TypedLines,
    piped_lines,
    read_script,
)
from anabranch.chat._terminal_session.live_replies import LiveReplies
from anabranch.chat._terminal_session.replies import Replies
from anabranch.cli._options import MODEL, STORE


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """How to chat, as it was typed.

    Attributes:
        targets: where its tools are.
        thread: the thread to continue; ``last`` for the latest.
        at: the node to continue at.
        store: the store's URL.
        model: the model's name.
        script: the file whose lines are the input.
        limits: of each turn and of its tools.
        folding: whether subtasks may be done in branches.
        memory: whether the tools of the memory are offered.
        system: the system prompt of a conversation that is begun.
        prompt: the one message of a chat that ends with its answer.
        detach: whether the chat ends before its answer, which the server goes on with.
        headers: what is sent with the requests to the targets' servers.
        variables: of the targets' servers that are started.
    """

    targets: Sequence[str] = ()
    thread: str | None = None
    at: str | None = None
    store: str | None = None
    model: str | None = None
    script: Path | None = None
    limits: Limits = UNLIMITED
    folding: bool = False
    memory: bool = False
    system: str | None = None
    prompt: str | None = None
    headers: Sequence[str] = ()
    detach: bool = False
    variables: Sequence[str] = ()


def lines_of(script: Path | None, console: Console) -> InputLines:
    """Return the lines of a script, a pipe or a person."""
    if script is not None and str(script) != "-":
        return read_script(script)
    if not console.interactive or script is not None:
        return piped_lines(sys.stdin.fileno())
    return TypedLines(console.stream, data_folder() / "chat_history")


def replies_to(lines: InputLines, console: Console) -> Replies:
    """Return how replies are shown: at a terminal if all is shown at one, else plainly."""
    live = isinstance(lines, TypedLines) and sys.stdout.isatty()
    return LiveReplies(console) if live else Replies()


def command_to_go_on(options: ChatOptions, thread_id: str) -> str | None:
    """Return the command that continues a thread as ``options`` say; ``None`` if it is not stored.

    What is set in the environment is there the next time, too. The values of headers and variables,
    which may be secrets, are left out.
    """
    if options.store is not None and options.store.startswith("memory:"):
        return None
    words = ["anabranch", "chat", *options.targets, "--thread", thread_id]
    for name, given, variable in (
        ("--store", options.store, STORE),
        ("--model", options.model, MODEL),
    ):
        if given is not None and given != os.environ.get(variable):
            words += [name, given]
    for header in options.headers:
        words += ["--header", f"{header.partition(':')[0]}: …"]
    for variable in options.variables:
        name, equals, _ = variable.partition("=")
        words += ["--env", f"{name}=…" if equals else name]
    for name, value in asdict(options.limits).items():
        if value is not None:
            words += [f"--{name.replace('_', '-')}", f"{value:g}"]
    words += ["--folding"] if options.folding else []
    words += ["--memory"] if options.memory else []
    return shlex.join(words)


def data_folder() -> Path:
    """Return the folder of what chats store beside conversations."""
    return user_data_path("anabranch", appauthor=False)

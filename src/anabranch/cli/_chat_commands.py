"""The commands ``chat`` and ``browse``: a conversation at the terminal, led or shown."""

from __future__ import annotations

import logging
import shlex
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from anabranch._terminal import FailedError, LeftError, UsageError
from anabranch.cli._option_groups import AgentOptions, TurnOptions
from anabranch.cli._options import ChatTargets, Model, Store
from anabranch.cli._output import print_text
from anabranch.errors import needs_extra


def chat_command(
    *targets: ChatTargets,
    thread: Annotated[
        str | None,
        Parameter(
            help="Conversation to continue, or “last” for the latest. A new name starts a "
            "conversation. Default: a new conversation."
        ),
    ] = None,
    at: Annotated[
        str | None,
        Parameter(help="Node at which to continue: an id, a label, or the name of a branch."),
    ] = None,
    store: Store = None,
    model: Model = None,
    script: Annotated[
        Path | None,
        Parameter(help="Path of a file with one input in each line; - for standard input."),
    ] = None,
    system: Annotated[str | None, Parameter(help="System prompt of a new conversation.")] = None,
    prompt: Annotated[
        str | None,
        Parameter(
            name=["--prompt", "-p"], help="Send this message, print only the reply, and end."
        ),
    ] = None,
    turn: TurnOptions = TurnOptions(),
) -> None:
    from anabranch._terminal import Console, log_to_stderr, run_command
    from anabranch.cli._chat_parts import tools_of
    from anabranch.cli._chatting import ChatOptions, chat

    log_to_stderr(logging.ERROR)
    if prompt is not None and script is not None:
        raise UsageError("--prompt and --script both give the input. Leave one of them out.")
    agent = AgentOptions(model=model, store=store, turn=turn)
    options = ChatOptions(targets, thread, at, script, system, prompt, agent)
    run_command(chat, options, tools_of(targets, turn), Console())


INSTEAD = "anabranch tree show works without the extra."


def browse_command(
    thread: Annotated[
        str | None, Parameter(help="Id of a conversation, or its beginning. Default: the latest.")
    ] = None,
    /,
    *,
    store: Store = None,
) -> None:
    from anabranch._terminal import Console, run_command
    from anabranch.cli._tree_commands import stored_tree
    from anabranch.tree import LATEST

    tree = stored_tree(thread or LATEST, store)
    with needs_extra("tui", "Browsing", UsageError, instead=INSTEAD):
        from anabranch.cli._browser import Browser
    if not Console().interactive:
        raise UsageError(f"There is no terminal to browse at. {INSTEAD}")
    browser = Browser(tree)
    node_id = run_command(browser.run_async)
    if browser.return_code == LeftError.status:
        raise LeftError
    if node_id is None:
        return
    if tree.thread.owner is not None:
        raise FailedError(
            f"The conversation {tree.thread.id!r} belongs to a user of a web application,"
            " and cannot be continued here."
        )
    print_text(command_for(tree.thread.id, node_id, store))


def command_for(thread_id: str, node_id: str, store: str | None) -> str:
    words = ["anabranch", "chat", "--thread", thread_id, "--at", node_id]
    return shlex.join([*words, "--store", store] if store else words)

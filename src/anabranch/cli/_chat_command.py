"""``anabranch chat``: a chat session at the terminal, or driven by a script."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from anabranch._terminal import UsageError
from anabranch.cli._option_groups import AgentOptions, TurnOptions
from anabranch.cli._options import ChatTargets, Model, Store


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

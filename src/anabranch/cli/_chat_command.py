"""``anabranch chat``: a chat session at the terminal, or driven by a script."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from anabranch._terminal.exits import UsageError
from anabranch.cli._options import (
    ChosenTools,
    Foldable,
    Model,
    Remembering,
    ServerHeaders,
    Store,
    TurnMaxDepth,
    TurnMaxTokens,
    TurnTimeout,
    Variables,
    WithoutTools,
    turn_limits_of,
)
from anabranch.cli._target_options import ChatTargets


def chat_command(  # noqa: PLR0913 - the options of the command
    *targets: ChatTargets,
    thread: Annotated[
        str | None,
        Parameter(
            help="The conversation to continue, or “last” for the latest; if there is none of this"
            " name, it is begun. Without it, a new one is begun."
        ),
    ] = None,
    at: Annotated[
        str | None,
        Parameter(help="Where in it to continue: a node's id, a label, or a branch's name."),
    ] = None,
    store: Store = None,
    model: Model = None,
    script: Annotated[
        Path | None,
        Parameter(help="A file with one line of input per line; - for standard input."),
    ] = None,
    system: Annotated[
        str | None, Parameter(help="The system prompt of the conversation that is begun.")
    ] = None,
    prompt: Annotated[
        str | None,
        Parameter(name=["--prompt", "-p"], help="Say this alone, print the answer alone, and end."),
    ] = None,
    max_tokens: TurnMaxTokens = None,
    max_depth: TurnMaxDepth = None,
    timeout: TurnTimeout = None,
    header: ServerHeaders = None,
    env: Variables = None,
    tools: ChosenTools = None,
    without: WithoutTools = None,
    folding: Foldable = False,
    memory: Remembering = False,
) -> None:
    """Run the command."""
    from anabranch._terminal.console import Console
    from anabranch._terminal.interrupts import run_command
    from anabranch._terminal.logs import log_to_stderr
    from anabranch.chat import Plugin
    from anabranch.cli._chat_parts import ChatOptions
    from anabranch.cli._chat_tools import tools_of
    from anabranch.cli._chatting import chat

    log_to_stderr(logging.ERROR)
    limits = turn_limits_of(max_tokens, max_depth, timeout)
    if prompt is not None and script is not None:
        raise UsageError("--prompt and --script are both what is said. Leave one of them out.")
    options = ChatOptions(
        targets,
        thread,
        at,
        store,
        model,
        script,
        limits,
        folding,
        memory,
        system,
        prompt,
        header or (),
        env or (),
    )
    # A terminal shows all questions as forms, under the rules of their tools' plugins.
    offered = [
        tool
        for each in tools_of(targets, header or (), env or (), (tools or (), without or ()))
        for tool in (each.server.tools if isinstance(each, Plugin) else [each])
    ]
    run_command(chat, options, offered, Console())

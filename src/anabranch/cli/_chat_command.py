"""``anabranch chat``: a chat session at the terminal, or driven by a script.

``anabranch web`` and ``anabranch worker`` share the options of turns.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from anabranch._terminal import UsageError
from anabranch.cli._options import (
    ChatTargets,
    Foldable,
    Model,
    Remembering,
    Store,
    Variables,
    limits_of,
)

if TYPE_CHECKING:
    from anabranch._budget import Limits


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class TurnOptions:
    """The options of an agent's turns, and of its tools."""

    max_tokens: Annotated[
        int | None,
        Parameter(help="Maximum tokens of one turn, with its replies, branches and tools."),
    ] = None
    max_depth: Annotated[
        int | None, Parameter(help="Maximum depth of nested branches in a turn, and in a call.")
    ] = None
    timeout: Annotated[
        float | None, Parameter(help="Maximum seconds of one branch, and of one call of a tool.")
    ] = None
    header: Annotated[
        list[str] | None,
        Parameter(
            help="Header of the requests to the server at a URL, as 'Name: value'. Repeatable.",
            negative=(),
        ),
    ] = None
    env: Variables = None
    tools: Annotated[
        list[str] | None,
        Parameter(
            help="Tool to offer, by name or by a pattern such as 'issues_*'. Repeatable. Default: all "
            "tools.",
            negative=(),
        ),
    ] = None
    without: Annotated[
        list[str] | None,
        Parameter(help="Tool to leave out, by name or by a pattern. Repeatable.", negative=()),
    ] = None
    folding: Foldable = False
    memory: Remembering = False

    def limits(self) -> Limits:
        """Return the limits of turns and of the calls of their tools."""
        if self.max_tokens == 0:
            raise UsageError("A turn needs tokens. Give --max-tokens 1 or more.")
        return limits_of(self.max_tokens, self.max_depth, self.timeout)


def chat_command(
    *targets: ChatTargets,
    thread: Annotated[
        str | None,
        Parameter(
            help="Conversation to continue, or “last” for the latest. The command starts a "
            "conversation of this name if there is none. Default: a new conversation."
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
    options = ChatOptions(targets, thread, at, store, model, script, system, prompt, turn)
    turn.limits()  # a wrong limit is reported before any target's code runs
    run_command(chat, options, tools_of(targets, turn), Console())

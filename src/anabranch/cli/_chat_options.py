"""How to chat, as it was typed: the options of a chat, and the source of its lines."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_data_path

from anabranch._terminal.console import Console
from anabranch.chat._terminal_session.input_lines import (
    InputLines,
    TypedLines,
    piped_lines,
    read_script,
)
from anabranch.limits import UNLIMITED, Limits

__all__ = ["ChatOptions", "data_folder", "lines_of"]


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


def lines_of(script: Path | None, console: Console, words: Sequence[str]) -> InputLines:
    """Return the lines of a script, a pipe or a person, for whom ``words`` are completed."""
    if script is not None and str(script) != "-":
        return read_script(script)
    if not console.interactive or script is not None:
        return piped_lines(sys.stdin.fileno())
    return TypedLines(console.stream, words, data_folder() / "chat_history")


def data_folder() -> Path:
    """Return the folder of what chats store beside conversations."""
    return user_data_path("anabranch", appauthor=False)

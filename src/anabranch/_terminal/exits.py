"""How a command ends early: each with one sentence on stderr and an exit status."""

from __future__ import annotations

__all__ = ["CommandError", "FailedError", "LeftError", "UsageError"]


class CommandError(Exception):
    """The command ends; the message says what is wrong and what to do about it."""

    status = 1


class FailedError(CommandError):
    """The tool failed or was refused, or its server could not be reached."""


class LeftError(CommandError):
    """The person has left by Ctrl-C."""

    status = 130

    def __init__(self) -> None:
        super().__init__("cancelled")


class UsageError(CommandError):
    """The command was given something that makes no sense: nothing was called."""

    status = 2

"""How a command ends early: each error becomes one sentence on stderr and an exit status."""

from __future__ import annotations

__all__ = ["CommandError", "FailedError", "LeftError", "UsageError"]


class CommandError(Exception):
    """Ends the command. The message says what is wrong and what to do about it."""

    status = 1


class FailedError(CommandError):
    """The tool failed or was refused, or its server could not be reached."""


class LeftError(CommandError):
    """The person left with Ctrl-C."""

    status = 130

    def __init__(self) -> None:
        super().__init__("cancelled")


class UsageError(CommandError):
    """The command was used wrongly; nothing was called."""

    status = 2

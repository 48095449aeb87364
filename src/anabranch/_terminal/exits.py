"""The early ends of a command: each error becomes one sentence on stderr and an exit status."""

from __future__ import annotations

import signal


class CommandError(Exception):
    """Ends the command. The message says what is wrong and what to do about it."""

    status = 1


class FailedError(CommandError):
    """The tool failed or was refused, or its server could not be reached."""


class LeftError(CommandError):
    """The person left with Ctrl-C, or another signal has ended the command.

    The exit status is the one that a shell reports for a process which the signal has killed.
    """

    status = 130

    def __init__(self, number: int = signal.SIGINT) -> None:
        super().__init__("cancelled" if number == signal.SIGINT else "terminated")
        self.status = 128 + number


class UsageError(CommandError):
    """The command was used wrongly; nothing was called."""

    status = 2

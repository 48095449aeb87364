"""Errors that end a command early, each with one sentence for stderr and an exit status."""

from __future__ import annotations

import signal
from collections.abc import Generator
from contextlib import contextmanager


class CommandError(Exception):
    """Ends the command. The message names the problem and the fix."""

    status = 1


class FailedError(CommandError):
    """The tool failed, the server refused the call, or the server is unreachable."""


class LeftError(CommandError):
    """The user pressed Ctrl-C, or another signal ended the command; the status is a shell's."""

    status = 130

    def __init__(self, number: int = signal.SIGINT) -> None:
        super().__init__("cancelled" if number == signal.SIGINT else "terminated")
        self.status = 128 + number


class UsageError(CommandError):
    """The user gave wrong options or arguments. The command called no tool."""

    status = 2


@contextmanager
def failing_as(failure: type[CommandError], *errors: type[Exception]) -> Generator[None]:
    """End the command with ``failure`` after one of ``errors`` in the block, in its words."""
    try:
        yield
    except errors as error:
        raise failure(str(error)) from error

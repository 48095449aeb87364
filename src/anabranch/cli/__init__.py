"""The command line. Nothing imports it.

    commands.py                the commands and their options
    serve.py, call.py, demo.py what they do; check.py too
    tree.py                    anabranch tree: the commands over stored conversations
    store_option.py            where those are
    chat.py                    anabranch chat: a session at the terminal (chat_*.py: its parts)
    browse.py                  anabranch browse: the tree on a full screen
    targets.py, server.py      what a TARGET offers, as one server
    connection.py              the way to a server
    respondent.py              who answers: answers.py, a model, or forms.py at the terminal

stdout carries the result alone. Exit status: 0 done, 1 the tool failed or was refused, 2 wrong
usage, 130 interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from cyclopts import CycloptsError

from anabranch._terminal.console import printable
from anabranch._terminal.exits import CommandError, LeftError, UsageError
from anabranch.cli._commands import app

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status; ``sys.argv`` is read by default."""
    try:
        app(
            sys.argv[1:] if arguments is None else list(arguments),
            exit_on_error=False,
            print_error=False,
            result_action="return_none",
        )
    except CommandError as error:
        sys.stderr.write(printable(f"anabranch: {error}\n"))
        return error.status
    except CycloptsError as error:
        sys.stderr.write(f"anabranch: {error} See anabranch --help.\n")
        return UsageError.status
    except KeyboardInterrupt:
        sys.stderr.write("anabranch: cancelled\n")
        return LeftError.status
    return 0

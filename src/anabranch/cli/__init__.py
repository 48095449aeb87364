"""The command line ``anabranch``: :func:`main` runs a command.

The module of a command declares its options, and imports the module that does its work when the
command runs. So a start imports what the command uses, and ``--help`` imports no SDK, database or
prompt.

Any function may raise a ``CommandError``, whose sentence ``main`` prints on stderr: an option, a
target or an answer is wrong, or the work failed. stdout carries the result alone. Exit status: 0
done, 1 the tool failed or was refused, 2 wrong usage, 130 interrupted, 141 the reader of stdout has
left.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from contextvars import copy_context
from itertools import takewhile

from cyclopts import CycloptsError

from anabranch._terminal import CommandError, LeftError, UsageError
from anabranch._text import printable
from anabranch.cli._commands import app
from anabranch.cli._configuration import configuration_files
from anabranch.errors import MissingExtraError, typed_command

__all__ = ["main"]

# Without this, the interpreter's end looks through all objects of all modules, for a quarter of a
# second in each process: a client waits for its server, and a user for both.
atexit.register(gc.freeze)

# Imports make objects that stay. With the default of 700 new objects between two collections, a start
# spends a tenth of its time on looking through them.
gc.set_threshold(50_000)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command in ``arguments``, or else in ``sys.argv``; return its exit status."""
    typed = sys.argv[1:] if arguments is None else list(arguments)
    return copy_context().run(_run, typed)  # no later command in this process sees these words


def _run(typed: list[str]) -> int:
    try:
        app.config = configuration_files()
        typed_command.set(" ".join(["anabranch", *takewhile(str.isalpha, typed)]))
        app(typed, exit_on_error=False, print_error=False, result_action="return_none")
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output has left, as head does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141  # as a shell reports a process that SIGPIPE has ended
    except CommandError as error:
        with suppress(OSError):  # SIGHUP: the terminal is closed
            sys.stderr.write(printable(f"anabranch: {error}\n"))
        return error.status
    except ImportError as error:  # from a command's module, which is imported late
        missing = error if isinstance(error, MissingExtraError) else error.__cause__
        if not isinstance(missing, MissingExtraError):
            raise
        sys.stderr.write(printable(f"anabranch: {missing}\n"))
        return UsageError.status
    except CycloptsError as error:
        sys.stderr.write(printable(f"anabranch: {error} See anabranch --help.\n"))
        return UsageError.status
    except KeyboardInterrupt:
        sys.stderr.write("anabranch: cancelled\n")
        return LeftError.status
    return 0

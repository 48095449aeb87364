"""The command line ``anabranch``. No other package imports this one.

    _commands.py                      the commands by name, and their help; each is loaded when used;
                                      and options from pyproject.toml and the user's file
    _tool_commands.py                 demo, dev, list, inspect, call and check
    _demo_game.py, _demo_tool.py      the game of anabranch demo, and its tool
    _reloading.py                     the tools of anabranch dev, loaded again when they change
    _tool_summaries.py                the tools of a target in words, for list and inspect
    _calling.py, _checking.py         the work of anabranch call and anabranch check
    _serve_command.py                 anabranch serve
    _serving.py                       its work, in one process or several
    _combined_server.py               all tools and servers of the targets, as one server
    _endpoint.py                      where a server listens, and its number of processes
    _http_access.py                   over HTTP: the accepted host names and bearer tokens
    _http_server.py                   uvicorn, in one process or several, and the stop of a server
    _http_shares.py                   limits of requests in progress
    _chat_command.py                  anabranch chat; _chatting.py does its work
    _web_commands.py                  anabranch web and worker; _working.py does the worker's work
    _chat_parts.py                    the parts of chat, web and worker
    _calls_commands.py                anabranch calls: recorded calls; _calls_drawing.py: as text;
                                      _calls_replaying.py: replayed, and undone on request
    _work_commands.py                 anabranch work: the runs of chats that have not ended
    _tree_commands.py                 anabranch tree: the commands over stored conversations
    _memory_commands.py               anabranch memory: notes from earlier work
    _browse_command.py, _browser.py   anabranch browse: a conversation on a full screen

    _options.py                       options that several commands share, and the reading of their texts;
                                      _option_groups.py: groups of options
    _memory.py                        the memory and the branches that --memory and --folding open
    _answering.py                     a tool's arguments, and the answerer of its questions
    _targets.py                       the forms of a TARGET, and the loading of its tools
    _connection.py                    the connection to a target's server; _call_trace.py shows it
    _output.py                        the result on stdout; asks before a command deletes
    _stores.py                        the stores and the engine, and the keys that seal open questions

The module of a command declares its options, and imports the module that does its work when the
command runs. So a start imports what the command uses, and ``--help`` imports no SDK, database or prompt.

Any function may raise a ``CommandError``, whose sentence ``main`` prints on stderr: an option, a target
or an answer is wrong, or the work failed. The ``Raises:`` sections name only other errors.

stdout carries the result alone. Exit status: 0 done, 1 the tool failed or was refused, 2 wrong
usage, 130 interrupted, 141 the reader of stdout has left.
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
from anabranch.cli._commands import app, configuration_files
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
        app(
            typed,
            exit_on_error=False,
            print_error=False,
            result_action="return_none",
        )
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

"""Asks the user at a terminal, shows output, and takes answers from a file or a model instead.

    console.py      lines on stderr, and one question on the screen at a time
    forms.py        an MCP form, drawn field by field
    answer_file.py  answers from a file instead: ``--answers FILE``
    respondent.py   chooses the source of an answer: the file, a model, or the user
    interrupts.py   Ctrl-C while something runs
    live_region.py  text that the terminal redraws below the last line
    logs.py         the log on stderr
    exits.py        errors that end a command: one sentence on stderr and an exit status

The commands and the chat use this package. The package imports neither of them, no transport and no
server: questions and answers are objects of ``anabranch.messages``. The package writes to stderr, and
leaves stdout to results.
"""

from typing import TYPE_CHECKING

from anabranch._lazy import lazy_names

if TYPE_CHECKING:
    from anabranch._terminal.answer_file import Answers, names_of
    from anabranch._terminal.console import Console
    from anabranch._terminal.exits import CommandError, FailedError, LeftError, UsageError
    from anabranch._terminal.forms import DismissedError, ask_consent, ask_form, ask_text
    from anabranch._terminal.interrupts import (
        STILL_RUNNING,
        handled_by,
        on_interrupt,
        run_command,
        signals_restored,
        woken_by_signals,
    )
    from anabranch._terminal.live_region import LiveRegion
    from anabranch._terminal.logs import JsonFormatter, log_to_stderr
    from anabranch._terminal.respondent import NO_MODEL, Respondent
else:
    __getattr__ = lazy_names(
        __name__,
        {
            ".answer_file": "Answers names_of",
            ".console": "Console",
            ".exits": "CommandError FailedError LeftError UsageError",
            ".forms": "DismissedError ask_consent ask_form ask_text",
            ".interrupts": (
                "STILL_RUNNING handled_by on_interrupt run_command signals_restored woken_by_signals"
            ),
            ".live_region": "LiveRegion",
            ".logs": "JsonFormatter log_to_stderr",
            ".respondent": "NO_MODEL Respondent",
        },
    )

"""Asks the user at a terminal, shows output, and takes answers from a file or a model instead.

The commands and the chat use this package, which imports neither of them, no transport and no
server. The package writes to stderr, and leaves stdout to results.
"""

from typing import TYPE_CHECKING

from anabranch._lazy import lazy_names

if TYPE_CHECKING:
    from anabranch._terminal.answer_file import Answers, names_of
    from anabranch._terminal.console import (
        Console,
        JsonFormatter,
        LiveRegion,
        is_drawable,
        log_to_stderr,
    )
    from anabranch._terminal.exits import (
        CommandError,
        FailedError,
        LeftError,
        UsageError,
        failing_as,
    )
    from anabranch._terminal.forms import DismissedError, ask_consent, ask_form, ask_text
    from anabranch._terminal.interrupts import (
        STILL_RUNNING,
        handled_by,
        on_interrupt,
        run_command,
        signals_restored,
        woken_by_signals,
    )
    from anabranch._terminal.respondent import NO_MODEL, Respondent
else:
    __getattr__ = lazy_names(
        __name__,
        {
            ".answer_file": "Answers names_of",
            ".console": "Console JsonFormatter LiveRegion is_drawable log_to_stderr",
            ".exits": "CommandError FailedError LeftError UsageError failing_as",
            ".forms": "DismissedError ask_consent ask_form ask_text",
            ".interrupts": (
                "STILL_RUNNING handled_by on_interrupt run_command signals_restored woken_by_signals"
            ),
            ".respondent": "NO_MODEL Respondent",
        },
    )

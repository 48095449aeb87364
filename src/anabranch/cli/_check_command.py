"""``anabranch check``: finds code in a target's tools that is not safe to replay.

Findings are a JSON list on stdout, and sentences on stderr.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from anabranch.cli._options import ArgumentsJson
from anabranch.cli._target_options import Arguments, SourceTarget, ToolName


def check_command(
    target: SourceTarget,
    tool: ToolName = None,
    /,
    *values: Annotated[Arguments, Parameter(help="Arguments of the tool, as for call.")],
    json_text: ArgumentsJson = None,
    answers: Annotated[
        Path | None,
        Parameter(
            name="--answers",
            help="Path of answers, as for call. With it, the command also runs the tool: steps happen "
            "once, code outside of steps runs twice.",
        ),
    ] = None,
) -> None:
    """Run the command."""
    from anabranch._terminal import Console, log_to_stderr, run_command
    from anabranch.cli._answering import new_respondent
    from anabranch.cli._checking import CheckOptions, check, report
    from anabranch.cli._output import print_json

    log_to_stderr(logging.ERROR)
    console = Console(interactive=False)
    respondent = new_respondent(console, None, answers) if answers is not None else None
    options = CheckOptions(target, tool, values, json_text)
    findings = run_command(check, options, console, respondent)
    print_json([finding.to_json() for finding in findings])
    sys.stdout.flush()
    report(findings, console)
    if sys.stdout.isatty():
        console.say("Nothing found." if respondent else "Nothing found in the source.")

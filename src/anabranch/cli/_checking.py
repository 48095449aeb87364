"""The replay checks of a target's tools: the work of ``anabranch check``.

The checks themselves are in ``anabranch.replay_check``.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anabranch._terminal import Console, FailedError, Respondent, UsageError
from anabranch.cli._answering import read_arguments
from anabranch.cli._targets import is_server, load
from anabranch.errors import AnabranchError, InvalidArgumentsError, format_for_author
from anabranch.replay_check import Finding, NoSourceError, check_tool, rehearse
from anabranch.tool import Tool


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """The target, the tool and the options of a check that the user has typed."""

    target: str
    tool: str | None = None
    pairs: Sequence[str] = ()
    json_text: str | None = None


async def check(
    options: CheckOptions, console: Console, respondent: Respondent | None
) -> list[Finding]:
    """Return the findings: in the source, and with a ``respondent`` also from running the tool."""
    tools = choose_tools(options)
    found: dict[Finding, None] = {}
    for tool in tools:
        try:
            found.update(dict.fromkeys(check_tool(tool)))
        except NoSourceError as error:
            raise UsageError(str(error)) from error
    if respondent is not None:
        found.update(dict.fromkeys(await run(options, tools, console, respondent)))
    elif options.pairs or options.json_text is not None:
        raise UsageError("Arguments are for a run: give --answers FILE as well.")
    return [finding.seen_from(Path.cwd()) for finding in found]


def choose_tools(options: CheckOptions) -> list[Tool[Any]]:
    """Return all tools of the target, or the named one."""
    target = options.target
    if is_server(target):
        raise UsageError(
            f"{target} is a running server. Check the file or module that has its tools."
        )
    tools = load([target]).tools
    if not tools:
        raise UsageError(
            f"{target} offers only a server, and no anabranch tool: functions of the SDK and of"
            " FastMCP are never replayed. Check the module that defines the tools."
        )
    named = [tool for tool in tools if options.tool in {None, tool.name}]
    if not named:
        offered = ", ".join(tool.name for tool in tools)
        raise UsageError(f"{target} has no tool {options.tool!r}. It offers: {offered}.")
    return named


async def run(
    options: CheckOptions, tools: Sequence[Tool[Any]], console: Console, respondent: Respondent
) -> list[Finding]:
    """Run each round of the tool twice; send the tool's prints to stderr."""
    if len(tools) > 1:
        offered = ", ".join(tool.name for tool in tools)
        raise UsageError(f"Name the TOOL to run: {options.target} offers {offered}.")
    (tool,) = tools
    arguments: Mapping[str, Any] = read_arguments(
        options.pairs, options.json_text, tool.input_schema
    )

    try:
        with redirect_stdout(sys.stderr):
            done = await rehearse(tool, arguments, respondent)
    except InvalidArgumentsError as error:
        raise UsageError(str(error)) from error
    finally:
        respondent.report_left()
    failure = done.last.error if done.last is not None else None
    if failure is not None:
        console.say(f"The tool ended with {type(failure).__name__}: {failure}")
        if not isinstance(failure, AnabranchError):  # the reader is the tool's author
            lines = format_for_author(type(failure), failure, failure.__traceback__)
            console.say(lines.rstrip())
    return done.findings


def report(findings: Sequence[Finding], console: Console) -> None:
    """Show the findings, in a few lines each."""
    for finding in findings:
        console.say(str(finding))
    if findings:
        number = "1 finding" if len(findings) == 1 else f"{len(findings)} findings"
        raise FailedError(f"{number}.")

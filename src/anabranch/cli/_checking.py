"""The replay checks of a target's tools: the work of ``anabranch check``."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from anabranch._terminal import Console, FailedError, Respondent, UsageError, failing_as
from anabranch.cli._answering import read_arguments
from anabranch.cli._output import counted
from anabranch.cli._targets import is_server, load, no_such_tool
from anabranch.errors import AnabranchError, InvalidArgumentsError, format_for_author
from anabranch.replay_check import Finding, NoSourceError, check_tool, rehearse
from anabranch.tool import Tool


async def check(
    target: str,
    name: str | None,
    pairs: Sequence[str],
    json_text: str | None,
    console: Console,
    respondent: Respondent | None,
) -> list[Finding]:
    """Return the findings in the source of tools; with a ``respondent``, also run one tool."""
    tools = choose_tools(target, name)
    found: dict[Finding, None] = {}
    for tool in tools:
        with failing_as(UsageError, NoSourceError):
            found.update(dict.fromkeys(check_tool(tool)))
    if respondent is not None:
        if len(tools) > 1:
            names = ", ".join(tool.name for tool in tools)
            raise UsageError(f"Name the TOOL to run: {target} offers {names}.")
        arguments = read_arguments(pairs, json_text, tools[0].input_schema)
        found.update(dict.fromkeys(await run(tools[0], arguments, console, respondent)))
    elif pairs or json_text is not None:
        raise UsageError("Arguments are for a run: give --answers FILE as well.")
    return [finding.seen_from(Path.cwd()) for finding in found]


def choose_tools(target: str, name: str | None) -> list[Tool[Any]]:
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
    named = [tool for tool in tools if name in {None, tool.name}]
    if not named:
        raise no_such_tool(target, name, [tool.name for tool in tools])
    return named


async def run(
    tool: Tool[Any], arguments: Mapping[str, Any], console: Console, respondent: Respondent
) -> list[Finding]:
    try:
        with redirect_stdout(sys.stderr), failing_as(UsageError, InvalidArgumentsError):
            done = await rehearse(tool, arguments, respondent)
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
    for finding in findings:
        console.say(str(finding))
    if findings:
        raise FailedError(f"{counted(len(findings), 'finding')}.")

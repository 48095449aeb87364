"""``anabranch check``: what in a target's tools is not safe to replay.

Owns what is checked, and how findings are told: as a JSON list on stdout, in lines on stderr. What
is looked for is ``testing/replay_check``'s business.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anabranch._asking.host import Capabilities
from anabranch._engine import Answer, Ask
from anabranch._terminal.console import Console
from anabranch._terminal.exits import FailedError, UsageError
from anabranch._terminal.respondent import Respondent
from anabranch.cli._targets import is_url, load
from anabranch.cli._tool_arguments import read_arguments
from anabranch.errors import InvalidArgumentsError
from anabranch.inprocess import answer
from anabranch.messages import (
    ElicitReply,
    ElicitRequest,
    LogLevel,
    SampleReply,
    SampleRequest,
    UrlRequest,
)
from anabranch.replay_check import Finding, NoSourceError, check_tool
from anabranch.replay_check._rehearsal import rehearse
from anabranch.tool import Tool

__all__ = ["Subject", "check", "report"]


@dataclass(frozen=True, slots=True)
class Subject:
    """What is to be checked, as it was typed."""

    target: str
    tool: str | None = None
    pairs: Sequence[str] = ()
    json_text: str | None = None


async def check(subject: Subject, console: Console, respondent: Respondent | None) -> list[Finding]:
    """Return what is found: in the source, and with a ``respondent`` also by running the tool.

    Raises:
        UsageError: there is nothing to check, or nothing that could be run so.
    """
    tools = choose_tools(subject)
    found: dict[Finding, None] = {}
    for tool in tools:
        try:
            found.update(dict.fromkeys(check_tool(tool)))
        except NoSourceError as error:
            raise UsageError(str(error)) from error
    if respondent is not None:
        found.update(dict.fromkeys(await run(subject, tools, console, respondent)))
    elif subject.pairs or subject.json_text is not None:
        raise UsageError("Arguments are for a run: give --answers FILE as well.")
    return [finding.seen_from(Path.cwd()) for finding in found]


def choose_tools(subject: Subject) -> list[Tool[Any]]:
    """Return the target's tools, or the one that was named.

    Raises:
        UsageError: there is none.
    """
    target = subject.target
    if is_url(target):
        raise UsageError(f"{target} is running elsewhere. Check the file or module it is made of.")
    tools = load([target]).tools
    if not tools:
        raise UsageError(f"{target} offers an MCPServer alone. Check the module with its tools.")
    named = [tool for tool in tools if subject.tool in {None, tool.name}]
    if not named:
        offered = ", ".join(tool.name for tool in tools)
        raise UsageError(f"{target} has no tool {subject.tool!r}. It offers: {offered}.")
    return named


async def run(
    subject: Subject, tools: Sequence[Tool[Any]], console: Console, respondent: Respondent
) -> list[Finding]:
    """Run the one tool, each round twice. What it prints goes to stderr.

    Raises:
        UsageError: there are several, or the arguments do not fit.
    """
    if len(tools) > 1:
        offered = ", ".join(tool.name for tool in tools)
        raise UsageError(f"Name the TOOL to run: {subject.target} offers {offered}.")
    (tool,) = tools
    arguments: Mapping[str, Any] = read_arguments(
        subject.pairs, subject.json_text, tool.input_schema
    )

    async def answering(ask: Ask) -> Answer:
        return await answer(_Client(respondent, ask.step_id), ask)

    try:
        with redirect_stdout(sys.stderr):
            client = _Client(respondent)
            done = await rehearse(tool, arguments, client, answering=answering)
    except InvalidArgumentsError as error:
        raise UsageError(str(error)) from error
    finally:
        respondent.report_left()
    failure = done.last.error if done.last is not None else None
    if failure is not None:
        console.say(f"The tool ended with {type(failure).__name__}: {failure}")
    return done.findings


def report(findings: Sequence[Finding], console: Console) -> None:
    """Tell the findings, one line or a few each.

    Raises:
        FailedError: there are any.
    """
    for finding in findings:
        console.say(str(finding))
    if findings:
        number = "1 finding" if len(findings) == 1 else f"{len(findings)} findings"
        raise FailedError(f"{number}. A replay would not do the same again.")


class _Client:
    """A respondent, who answers by the step that asks, as a client, who is not told."""

    def __init__(self, respondent: Respondent, step_id: str = "") -> None:
        self._respondent = respondent
        self._step_id = step_id
        self._notices = 0

    @property
    def capabilities(self) -> Capabilities:
        return self._respondent.capabilities

    async def sample(self, request: SampleRequest) -> SampleReply:
        return await self._respondent.sample(self._step_id, request)

    async def elicit(self, request: ElicitRequest | UrlRequest) -> ElicitReply:
        return await self._respondent.elicit(self._step_id, request)

    async def log(self, level: LogLevel, message: str) -> None:
        await self._respondent.log(level, message)

    async def notify(self, message: str, progress: float | None, total: float | None) -> None:
        self._notices += 1
        far = progress if progress is not None else float(self._notices)
        await self._respondent.notify(message, far, total)

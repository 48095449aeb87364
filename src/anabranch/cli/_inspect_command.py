"""``anabranch inspect``: shows parameters, questions, requirements and limits of a target's tools."""

from __future__ import annotations

import logging
import sys

from anabranch.cli._options import AsJson, Headers, Token, Variables, variables_of
from anabranch.cli._target_options import Target, ToolName


def inspect_command(
    target: Target,
    tool: ToolName = None,
    /,
    *,
    json: AsJson = False,
    token: Token = None,
    header: Headers = None,
    env: Variables = None,
) -> None:
    """Run the command."""
    from anabranch._terminal import log_to_stderr, run_command
    from anabranch.cli._output import print_json, print_text
    from anabranch.cli._tokens import headers_of
    from anabranch.cli._tool_summaries import chosen, summaries_of

    log_to_stderr(logging.ERROR)
    headers = headers_of(token, header or ())
    tools = run_command(summaries_of, target, headers, variables_of(env or ()))
    shown = tools if tool is None else [chosen(tools, target, tool)]
    if json or not sys.stdout.isatty():
        values = [each.to_json() for each in shown]
        print_json(values if tool is None else values[0])
    else:
        print_text("\n\n".join("\n".join(each.lines()) for each in shown))

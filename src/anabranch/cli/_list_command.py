"""``anabranch list``: the tools of a target, one line each."""

from __future__ import annotations

import logging
import sys

from anabranch.cli._options import AsJson, Headers, Token, Variables, variables_of
from anabranch.cli._target_options import Target


def list_command(
    target: Target,
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
    from anabranch.cli._tool_summaries import overview, summaries_of

    log_to_stderr(logging.ERROR)
    headers = headers_of(token, header or ())
    tools = run_command(summaries_of, target, headers, variables_of(env or ()))
    if json or not sys.stdout.isatty():
        print_json([each.to_json() for each in tools])
    else:
        print_text(overview(target, tools))

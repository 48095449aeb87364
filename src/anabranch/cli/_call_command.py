"""``anabranch call``: calls one tool as an MCP client, and asks its questions at the terminal."""

from __future__ import annotations

import logging
from typing import Annotated

from cyclopts import Parameter

from anabranch._terminal import UsageError
from anabranch.cli._options import (
    AnswersFile,
    ArgumentsJson,
    ConfirmSamples,
    EraOption,
    Headers,
    MaxDepth,
    MaxSamples,
    MaxTokens,
    Model,
    NoSamplesFor,
    Timeout,
    Token,
    Variables,
    limits_of,
    variables_of,
)
from anabranch.cli._target_options import Arguments, Target, ToolName


def call_command(  # noqa: PLR0913 - the options of the command
    target: Target,
    tool: Annotated[
        ToolName, Parameter(help="Name of the tool. Without it, the command lists the tools.")
    ] = None,
    /,
    *values: Arguments,
    json_text: ArgumentsJson = None,
    era: EraOption = "auto",
    answers: AnswersFile = None,
    model: Model = None,
    confirm_samples: ConfirmSamples = False,
    max_samples: MaxSamples = None,
    no_samples_for: NoSamplesFor = (),
    max_tokens: MaxTokens = None,
    max_depth: MaxDepth = None,
    timeout: Timeout = None,
    token: Token = None,
    header: Headers = None,
    env: Variables = None,
    verbose: Annotated[
        bool,
        Parameter(
            name=["--verbose", "-v"],
            negative=(),
            help="Show the traffic on stderr: rounds, questions, links, repeated requests.",
        ),
    ] = False,
) -> None:
    """Run the command."""
    from anabranch._terminal import Console, log_to_stderr, run_command
    from anabranch.cli._answering import new_policy, new_respondent
    from anabranch.cli._calling import CallOptions, call
    from anabranch.cli._output import print_json
    from anabranch.cli._tokens import headers_of
    from anabranch.cli._tool_summaries import overview, summaries_of

    limits, headers = limits_of(max_tokens, max_depth, timeout), headers_of(token, header or ())
    variables = variables_of(env or ())
    log_to_stderr(logging.ERROR)  # connection problems are reported in this module's own words
    if tool is None:
        raise UsageError(
            f"Name a TOOL. {overview(target, run_command(summaries_of, target, headers, variables))}"
        )
    policy = new_policy(no_samples_for, confirm=confirm_samples, most=max_samples)
    respondent = new_respondent(Console(), model, answers)
    options = CallOptions(
        target, tool, values, json_text, era, policy, limits, headers, verbose, variables
    )
    print_json(run_command(call, options, respondent))

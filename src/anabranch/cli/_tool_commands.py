"""The commands that try tools: ``demo``, ``dev``, ``list``, ``inspect``, ``call`` and ``check``."""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from anabranch._terminal import UsageError, failing_as
from anabranch.cli._options import (
    STORE,
    AnswersFile,
    Arguments,
    ArgumentsJson,
    AsJson,
    CallLimits,
    EraOption,
    Model,
    ReachOptions,
    SourceTarget,
    Target,
    ToolName,
)

if TYPE_CHECKING:
    from anabranch._asking import AnsweringPolicy
    from anabranch.cli._tool_summaries import ToolSummary


def demo_command(
    *, era: EraOption = "auto", answers: AnswersFile = None, model: Model = None
) -> None:
    from anabranch._terminal import Console, log_to_stderr, run_command
    from anabranch.cli._answering import open_sampler, read_answers
    from anabranch.cli._demo_game import demo
    from anabranch.cli._output import print_json

    log_to_stderr(logging.ERROR)
    sampler, given = open_sampler(model), read_answers(answers)
    print_json(run_command(partial(demo, Console(), era=era, sampler=sampler, answers=given)))


def list_command(
    target: Target, /, *, json: AsJson = False, reach: ReachOptions = ReachOptions()
) -> None:
    from anabranch.cli._output import print_either
    from anabranch.cli._tool_summaries import overview

    tools = _summaries(target, reach)
    print_either([each.to_json() for each in tools], [overview(target, tools)], as_json=json)


def inspect_command(
    target: Target,
    tool: ToolName = None,
    /,
    *,
    json: AsJson = False,
    reach: ReachOptions = ReachOptions(),
) -> None:
    from anabranch.cli._output import print_either
    from anabranch.cli._tool_summaries import chosen

    tools = _summaries(target, reach)
    shown = tools if tool is None else [chosen(tools, target, tool)]
    values = [each.to_json() for each in shown]
    text = "\n\n".join("\n".join(each.lines()) for each in shown)
    print_either(values if tool is None else values[0], [text], as_json=json)


def _summaries(target: str, reach: ReachOptions) -> list[ToolSummary]:
    from anabranch._terminal import log_to_stderr, run_command
    from anabranch.cli._tool_summaries import summaries_of

    log_to_stderr(logging.ERROR)  # the command's own message reports connection problems
    return run_command(summaries_of, target, reach)


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRules:
    """The rules for the samples of a call."""

    confirm_samples: Annotated[
        bool, Parameter(negative="", help="Ask you before the model answers a sample.")
    ] = False
    max_samples: Annotated[
        int | None,
        Parameter(
            name="--max-samples-per-minute",
            help="Maximum samples in a minute. The command refuses further samples.",
        ),
    ] = None
    no_samples_for: Annotated[
        tuple[str, ...],
        Parameter(
            negative="", help="Tool or TARGET whose samples the command refuses. Repeatable."
        ),
    ] = ()

    def policy(self) -> AnsweringPolicy:
        from anabranch._asking import AnsweringPolicy

        try:
            return AnsweringPolicy(
                confirm_samples=self.confirm_samples,
                max_samples_per_minute=self.max_samples,
                never_for_tools=self.no_samples_for,
                never_for_servers=self.no_samples_for,
            )
        except ValueError as error:
            raise UsageError(f"{error}.") from error


def call_command(  # noqa: PLR0913 - the options of the command
    target: Target,
    tool: Annotated[ToolName, Parameter(help="Name of the tool. Default: list the tools.")] = None,
    /,
    *values: Arguments,
    json_text: ArgumentsJson = None,
    era: EraOption = "auto",
    answers: AnswersFile = None,
    model: Model = None,
    rules: SampleRules = SampleRules(),
    limits: CallLimits = CallLimits(),
    reach: ReachOptions = ReachOptions(),
    verbose: Annotated[
        bool,
        Parameter(
            name=["--verbose", "-v"],
            negative=(),
            help="Show the traffic on stderr: rounds, questions, links, repeated requests.",
        ),
    ] = False,
) -> None:
    from anabranch._terminal import Console, log_to_stderr, run_command
    from anabranch.cli._answering import new_respondent
    from anabranch.cli._calling import call
    from anabranch.cli._output import print_json

    narrowed = limits.read()
    log_to_stderr(logging.ERROR)
    if tool is None:
        from anabranch.cli._tool_summaries import overview

        raise UsageError(f"Name a TOOL. {overview(target, _summaries(target, reach))}")
    calling = partial(
        call,
        target,
        tool,
        new_respondent(Console(), model, answers),
        pairs=values,
        json_text=json_text,
        era=era,
        policy=rules.policy(),
        limits=narrowed,
        reach=reach,
        verbose=verbose,
    )
    print_json(run_command(calling))


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
            help="Path of a JSON list of answers, as for call. The command then also runs the "
            "tool: steps run once, code outside of steps runs twice in each round.",
        ),
    ] = None,
) -> None:
    from anabranch._terminal import Console, log_to_stderr, run_command
    from anabranch.cli._answering import new_respondent
    from anabranch.cli._checking import check, report
    from anabranch.cli._output import print_json

    log_to_stderr(logging.ERROR)
    console = Console(interactive=False)
    respondent = new_respondent(console, None, answers) if answers is not None else None
    findings = run_command(check, target, tool, values, json_text, console, respondent)
    print_json([finding.to_json() for finding in findings])
    sys.stdout.flush()
    report(findings, console)
    if sys.stdout.isatty():
        console.say("Nothing found." if respondent else "Nothing found in the source.")


def dev_command(
    *targets: SourceTarget,
    port: Annotated[int, Parameter(help="Port of the page; 0 for any free port.")] = 8080,
    open_page: Annotated[
        bool, Parameter(name="--open", help="Open the page in the browser.")
    ] = True,
    model: Model = None,
    store: Annotated[
        str | None,
        Parameter(
            env_var=STORE,
            help="Store of conversations and calls: sqlite:///FILE or postgresql://…. Default: memory,"
            " until the command ends.",
        ),
    ] = None,
) -> None:
    import webbrowser

    from anabranch._terminal import Console, log_to_stderr
    from anabranch.agents import BranchSelf
    from anabranch.chat import make_chat_app
    from anabranch.cli._answering import open_sampler
    from anabranch.cli._chat_parts import WithoutModel
    from anabranch.cli._endpoint import Endpoint
    from anabranch.cli._http_server import Bounds, serve_app
    from anabranch.cli._reloading import ReloadedTools
    from anabranch.errors import StoreError
    from anabranch.stores import open_stores

    log_to_stderr(logging.WARNING)
    sys.dont_write_bytecode = True  # bytecode would hide a second change in a second
    console, endpoint = Console(), Endpoint("http", port=port)
    endpoint.check()
    _check_sources(targets)
    tools = ReloadedTools(targets, console)
    leads = open_sampler(model, cache=True) or WithoutModel()
    with failing_as(UsageError, StoreError):
        calls, tree = open_stores(store or "memory:")
    app = make_chat_app(
        tree, leads, [BranchSelf(), tools], calls=calls, recorded_calls="values", closes_store=True
    )
    app.router.routes.insert(0, tools.route())
    app.state.rooms.append("dev")
    with endpoint.listen() as listener:
        address = f"{endpoint.address(listener)}/"

        def on_started() -> None:
            console.say(f"The tools are at {address} and are loaded again when a file changes.")
            if open_page:
                webbrowser.open(address)

        bounds = Bounds(endpoint.concurrency)
        serve_app(app, listener, bounds, on_started=on_started, around=tools.running())


def _check_sources(targets: tuple[str, ...]) -> None:
    from anabranch.cli._targets import is_server

    if not targets:
        raise UsageError("dev needs a TARGET: a Python file, a module, or module:attribute.")
    for target in targets:
        if is_server(target):
            raise UsageError(
                f"{target} is a server, so anabranch dev cannot load its source again. Use anabranch"
                " web to call its tools."
            )

"""The commands and their options, as they are typed.

Owns the command line's words and its help. What a command does is in the module of its name.
"""

from __future__ import annotations

import logging
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Literal

import anyio
from cyclopts import App, Parameter

from anabranch._terminal.console import Console, log_to_stderr
from anabranch.cli._browse_command import browse
from anabranch.cli._call_command import (
    Wish,
    call,
    new_respondent,
    open_sampler,
    read_answers,
    to_json,
)
from anabranch.cli._chat_command import ChatWish, chat, tools_of
from anabranch.cli._check_command import Subject, check, report
from anabranch.cli._combined_server import Keeping
from anabranch.cli._connection import MODEL, Era
from anabranch.cli._demo_command import demo
from anabranch.cli._serve_command import Way, serve
from anabranch.cli._store_option import Store
from anabranch.cli._tree_commands import tree_app
from anabranch.mcp._options import TTL

__all__ = ["STORE", "app"]

STORE = "ANABRANCH_STORE"


def _version() -> str:
    try:
        return version("anabranch")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "unknown"


app: App = App(
    name="anabranch",
    version=_version,
    help="Tools that talk back: serve them, call them, and answer what they ask.",
    help_format="markdown",
    suppress_keyboard_interrupt=False,  # main() tells of it, like of everything else
)

Model = Annotated[
    str | None,
    Parameter(
        env_var=MODEL,
        help="Who answers samples: provider:model (anthropic:…, openai:…, ollama:…),"
        " or script:FILE.",
    ),
]
AnswersFile = Annotated[
    Path | None,
    Parameter(
        name="--answers",
        help="A JSON list of answers; nobody is asked at the terminal then. Entries, taken in"
        ' order: {"accept": {…}}, {"decline": true}, {"cancel": true}, {"sample": "text"}; with'
        ' a "key", for the step of that name.',
    ),
]
EraOption = Annotated[
    Era,
    Parameter(
        help="The protocol's era: auto negotiates, modern is 2026-07-28, handshake is up to"
        " 2025-11-25, saga is the saga methods."
    ),
]


@app.command(name="serve")
def serve_command(
    *targets: Annotated[
        str, Parameter(help="A Python file, a module, or module:attribute. Several may be given.")
    ],
    transport: Annotated[
        Literal["stdio", "http"], Parameter(help="Over stdin and stdout, or over HTTP at /mcp.")
    ] = "stdio",
    host: Annotated[str, Parameter(help="Where HTTP listens.")] = "127.0.0.1",
    port: Annotated[int, Parameter(help="Where HTTP listens; 0 for any free port.")] = 8000,
    workers: Annotated[
        int,
        Parameter(
            help="Processes that share the port, over HTTP. With more than one, clients up to"
            " 2025-11-25 have no sessions, so that tools cannot ask them anything."
        ),
    ] = 1,
    store: Annotated[
        str | None,
        Parameter(
            env_var=STORE,
            help="Where calls are kept, so that effects happen once whatever clients repeat:"
            " sqlite:///path, postgresql://…, or memory:. Without it, nothing is kept.",
        ),
    ] = None,
    ttl: Annotated[
        float, Parameter(help="Seconds that a person has for one round of questions.")
    ] = TTL,
    continue_calls: Annotated[
        bool,
        Parameter(
            help="With a store, offer the tool continue_call, which picks up calls that need more"
            " rounds of questions than clients allow."
        ),
    ] = True,
    model: Model = None,
) -> None:
    """Serve the tools found in TARGET as an MCP server.

    Offered are every @tool, every HandoffTool instance and every MCPServer at module level. Open
    questions are sealed with the keys in ANABRANCH_KEYS (comma-separated, newest first), or with
    a key kept in your data directory. Calls are kept in a store only if --store or
    ANABRANCH_STORE names one.
    """
    way = Way(transport, host, port, workers)
    keeping = Keeping(store or None, ttl, continue_calls)
    serve(targets, way, model=model, keeping=keeping)


@app.command(name="call")
def call_command(
    target: Annotated[
        str, Parameter(help="A Python file, a module, module:attribute, or a server's URL.")
    ],
    tool: Annotated[str, Parameter(help="The tool's name.")],
    /,
    *values: Annotated[
        str,
        Parameter(
            name="name=value",
            help="Arguments: text for a parameter that takes text, JSON for any other.",
        ),
    ],
    json_text: Annotated[
        str | None,
        Parameter(name="--json", help="Arguments as a JSON object; name=value goes over it."),
    ] = None,
    era: EraOption = "auto",
    answers: AnswersFile = None,
    model: Model = None,
) -> None:
    """Call one tool as an MCP client; its result is printed as JSON.

    Its questions become forms in this terminal, and its samples go to the model, or to you where
    none is configured. Exit status: 0 done, 1 the tool failed or was refused, 2 wrong usage.
    """
    log_to_stderr(logging.ERROR)  # what a connection does wrong is told in our own words
    respondent = new_respondent(Console(), model, answers)
    wish = Wish(target, tool, values, json_text, era)
    sys.stdout.write(to_json(anyio.run(call, wish, respondent)) + "\n")


@app.command(name="check")
def check_command(
    target: Annotated[str, Parameter(help="A Python file, a module, or module:attribute.")],
    tool: Annotated[str | None, Parameter(help="The tool's name; all tools by default.")] = None,
    /,
    *values: Annotated[
        str, Parameter(name="name=value", help="Arguments for the run, as for call.")
    ],
    json_text: Annotated[
        str | None,
        Parameter(name="--json", help="Arguments as a JSON object; name=value goes over it."),
    ] = None,
    answers: Annotated[
        Path | None,
        Parameter(
            name="--answers",
            help="Run the tool as well, answered from this file (as for call). It really runs:"
            " its steps happen once, and what it does outside of steps happens twice.",
        ),
    ] = None,
) -> None:
    """Find what in a tool is not safe to replay.

    Reads the source of the tools in TARGET (which is imported). With --answers, one tool is run
    too, each round twice, and what the two runs do differently is found. Findings are printed as
    a JSON list, and in words on stderr. A line with the comment `# anabranch: replay-safe` is left
    alone. Exit status: 0 nothing found, 1 something found, 2 wrong usage.
    """
    log_to_stderr(logging.ERROR)
    console = Console(interactive=False)
    respondent = new_respondent(console, None, answers) if answers is not None else None
    subject = Subject(target, tool, values, json_text)
    findings = anyio.run(check, subject, console, respondent)
    sys.stdout.write(to_json([finding.to_json() for finding in findings]) + "\n")
    sys.stdout.flush()
    report(findings, console)


@app.command(name="demo")
def demo_command(
    *, era: EraOption = "auto", answers: AnswersFile = None, model: Model = None
) -> None:
    """Play the pick-a-card tool, served by a process of its own, in this terminal.

    Without a terminal it plays itself.
    """
    log_to_stderr(logging.ERROR)
    sampler, given = open_sampler(model), read_answers(answers)

    async def play() -> object:
        return await demo(Console(), era=era, sampler=sampler, answers=given)

    sys.stdout.write(to_json(anyio.run(play)) + "\n")


app.command(tree_app)


@app.command(name="chat")
def chat_command(
    *targets: Annotated[
        str, Parameter(help="Where tools are: a Python file, a module, or module:attribute.")
    ],
    thread: Annotated[
        str | None,
        Parameter(
            help="The conversation to go on with, or “last” for the latest; one that is not there"
            " begins under this name. Without it, a new one begins."
        ),
    ] = None,
    at: Annotated[
        str | None,
        Parameter(help="Where in it to go on: a node's id, a label, or a branch's name."),
    ] = None,
    store: Store = None,
    model: Model = None,
    script: Annotated[
        Path | None,
        Parameter(help="A file with one line of input per line; - for standard input."),
    ] = None,
) -> None:
    """Talk with a model that can fork itself, on a tree that you can walk.

    /help lists the commands. Answers go to stdout, everything else to stderr. Without a terminal,
    lines are read from standard input. Ctrl-C ends a turn, and what was received is kept; at the
    prompt it ends the program, as Ctrl-D does.
    """
    log_to_stderr(logging.ERROR)
    wish = ChatWish(targets, thread, at, store, model, script)
    anyio.run(chat, wish, tools_of(targets), Console())


@app.command(name="browse")
def browse_command(
    thread: Annotated[
        str | None, Parameter(help="The conversation; the latest without it.")
    ] = None,
    /,
    *,
    store: Store = None,
) -> None:
    """Walk through a stored conversation on a full screen.

    c ends it with the command that goes on at the node under the cursor; q ends it. It takes the
    extra tui.
    """
    command = anyio.run(browse, thread, store)
    if command is not None:
        sys.stdout.write(f"{command}\n")

"""The commands by name, with their help texts.

A command's options are declared in its own module, which is imported when the command is used and
not before: to list the commands, neither an SDK nor a database nor a prompt has to be loaded. The
help texts are here because the list shows the first sentence of each.
"""

from __future__ import annotations

from importlib.util import find_spec

from cyclopts import App, Parameter


def installed_version() -> str:
    """Return the version of this library."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("anabranch")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "unknown"


def _shown_default(value: object) -> str | None:
    return None if value in (None, "", ()) or value is False else str(value)


app: App = App(
    name="anabranch",
    version=installed_version,
    help="Tools that talk back: serve them, call them, and answer what they ask.",
    help_epilogue="Exit status: 0 done, 1 the tool failed or was refused, 2 wrong usage,"
    " 130 interrupted. Each command has a --help with an example.",
    help_format="plaintext",  # of the list; a Markdown parser is slow to import
    default_parameter=Parameter(show_default=_shown_default),
    suppress_keyboard_interrupt=False,  # main() reports it, as it reports every error
)


def example(*lines: str) -> str:
    """Return the end of a command's help: lines that can be typed."""
    return "\n\n".join(
        ["Example:" if len(lines) == 1 else "Examples:", *(f"`{each}`" for each in lines)]
    )


HELP = {
    "serve": """Serve the tools found in TARGET as an MCP server.

    Offered are every @tool, every HandoffTool instance, every plugin's tool and every MCPServer at
    module level. Open
    questions are sealed with the keys in ANABRANCH_KEYS (comma-separated, newest first), or with
    a key stored in your data directory. Calls are stored only if --store or ANABRANCH_STORE names
    a store.
    """,
    "list": """List the tools of TARGET: their names, arguments, and what they do.

    TARGET is loaded, or asked if it is a URL; no tool is called. People are shown a table, and
    programs JSON.
    """,
    "inspect": """Show what there is to know about the tools of TARGET, or about one TOOL.

    Parameters with their types and constraints, the questions that a tool declares, what it needs
    of a client, and its limits. Nothing is called. People are shown text, and programs JSON.
    """,
    "call": """Call one tool as an MCP client; its result is printed as JSON.

    Its questions become forms in this terminal, and its samples go to the model, or to you where
    none is configured. Exit status: 0 done, 1 the tool failed or was refused, 2 wrong usage.
    """,
    "check": """Find what in a tool is not safe to replay.

    Reads the source of the tools in TARGET (which is imported). With --answers, one tool is also
    run, each round twice, and whatever the two runs do differently is reported. Findings are
    printed as a JSON list, and described on stderr. A line with the comment
    `# anabranch: replay-safe` is not reported. Exit status: 0 nothing found, 1 something found,
    2 wrong usage.
    """,
    "demo": """Play the pick-a-card tool, served by a process of its own, in this terminal.

    Without a terminal it plays itself.
    """,
    "chat": """Talk with a model that can fork itself, on a tree that you can navigate.

    /help lists the commands. Answers go to stdout, everything else to stderr. Without a terminal,
    lines are read from standard input. Ctrl-C ends a turn, and what was received so far is stored;
    at the prompt it ends the program, as Ctrl-D does.
    """,
    "dev": """Try the tools of TARGET in a browser while you write them.

    The page calls any tool by a form, and asks you what the tool asks: you answer as the person,
    and without --model as the model, too. Its calls room has each round, and the values of each
    step. When a file changes, the tools are loaded again; where that fails, the page and this
    terminal show the lines, and the tools stay as they were.
    """,
    "web": """Talk with it in a browser: the chat as a page, with forms for what tools ask.

    Without TARGET it offers the pick-a-card game, and needs neither a model nor a network. A tool
    is called without the model by /TOOL name=value. Conversations are stored where --store names;
    a question that is open when the server ends is there when it starts again.
    """,
    "worker": """Work on the runs of chats that `anabranch web` accepts, on this machine or another.

    Give it the TARGETs, the model, the store and the engine that the web processes have. Any number
    of workers may run; what one leaves, when it ends or dies, another goes on with.
    """,
    "completion": """Print the script by which your shell completes anabranch.

    It completes commands, options, files, and the tools of a TARGET with their parameters. A
    TARGET that is a file is loaded for that.
    """,
    "browse": """Browse a stored conversation on a full screen.

    c ends it and prints the command that continues at the node under the cursor; q just ends it.
    """,
}
EXAMPLES = {
    "serve": example(
        "anabranch serve tools.py",
        "anabranch serve tools.py --transport http --port 9000 --store sqlite:///calls.db",
    ),
    "list": example("anabranch list tools.py"),
    "inspect": example("anabranch inspect tools.py plan_trip"),
    "call": example(
        "anabranch call tools.py plan_trip days=2",
        "anabranch call https://tools.example.org/mcp plan_trip days=2 --answers answers.json",
    ),
    "check": example("anabranch check tools.py"),
    "demo": example("anabranch demo"),
    "chat": example(
        "anabranch chat tools.py --model anthropic:claude-sonnet-5-5",
        "anabranch chat --thread last",
    ),
    "dev": example("anabranch dev tools.py"),
    "web": example("anabranch web", "anabranch web tools.py --model anthropic:claude-sonnet-5-5"),
    "worker": example(
        "anabranch worker tools.py --store postgresql://db/chat --engine dbos --model anthropic:NAME"
    ),
    "completion": example(
        "anabranch completion bash > ~/.local/share/bash-completion/completions/anabranch"
    ),
    "browse": example("anabranch browse last"),
}
NEEDS = {
    "dev": ("extra chat", "chat", "ag_ui"),
    "web": ("extra chat", "chat", "ag_ui"),
    "worker": ("extras chat and dbos", "chat,dbos", "dbos"),
    "browse": ("extra tui", "tui", "textual"),
}
"""The extras without which a command does not run, and a package that only they bring."""


def _needed(command: str) -> str:
    """Return what to install for a command, as the last sentence of its help; none for most."""
    if command not in NEEDS:
        return ""
    named, extra, package = NEEDS[command]
    if find_spec(package) is not None:
        return f" It needs the {named}."
    from anabranch.errors import install_command

    return f" It needs the {named}, of which a part is missing: `{install_command(extra)}`"


for _name, _help in HELP.items():
    app.command(
        f"anabranch.cli._{_name}_command:{_name}_command",
        name=_name,
        help=f"{_help.rstrip()}{_needed(_name)}",
        help_epilogue=EXAMPLES[_name],
        help_format="markdown",
        version_flags=("--version",),
    )
app.command(
    "anabranch.cli._calls_commands:calls_app",
    name="calls",
    help="Look at recorded calls, and replay them against the present code.",
)
app.command(
    "anabranch.cli._work_commands:work_app",
    name="work",
    help="Look at the runs of chats that have not ended, call for them once more, and stop them.",
)
app.command(
    "anabranch.cli._tree_commands:tree_app",
    name="tree",
    help="Look at, label, export and prune stored conversations.",
)
app.command(
    "anabranch.cli._memory_commands:memory_app",
    name="memory",
    help="List, search, show, forget, distill and export what was learned from earlier work.",
)

"""The commands by name, with their help texts.

The list of commands loads no SDK, database or prompt: a command's module is imported when it runs.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated, Literal

from cyclopts import App, Group, Parameter

from anabranch._terminal import UsageError


def installed_version() -> str:
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
    help="Human-in-the-loop tools: try them, serve them, and answer their questions.",
    help_epilogue="Exit status: 0 done, 1 the tool failed or was refused, 2 wrong usage,"
    " 130 interrupted. Each command has a --help with an example.",
    help_format="plaintext",  # of the list; a Markdown parser is slow to import
    default_parameter=Parameter(show_default=_shown_default),
    suppress_keyboard_interrupt=False,  # main() reports it, as it reports every error
)


def example(*lines: str) -> str:
    return "\n\n".join(
        ["Example:" if len(lines) == 1 else "Examples:", *(f"`{each}`" for each in lines)]
    )


def command_group(name: str, sample: str) -> App:
    return App(
        name=name, version=installed_version, help_epilogue=example(sample), help_format="markdown"
    )


HELP = {
    "demo": """Play a card game with a tool that asks questions, in this terminal.

    The tool runs in an MCP server process. Without a terminal the game plays itself.
    """,
    "dev": """Try the tools of TARGET in a browser while you write them.

    The page shows a form to call each tool, and forms for the questions that the tool asks. The
    page also lists the calls, with their rounds and the values of their steps. When a file changes,
    the command loads the tools again. If loading fails, the page and this terminal show the faulty
    lines, and the old tools stay.
    """,
    "list": """List the tools of TARGET with their arguments and descriptions.

    The command loads TARGET, or asks a server at a URL, and calls no tool. The list is a table in
    a terminal, otherwise JSON.
    """,
    "inspect": """Show the parameters, questions, required capabilities and limits of the tools of TARGET.

    With TOOL, the command shows only this tool. The command calls no tool. The output is text in a
    terminal, otherwise JSON.
    """,
    "call": """Call one tool as an MCP client, and print its result as JSON.

    The tool's questions become forms in this terminal. Its samples go to the --model; without a
    model, the terminal asks you for the reply. Exit status: 0 done, 1 the tool failed or was
    refused, 2 wrong usage.
    """,
    "check": """Find code in the tools of TARGET that is unsafe to replay.

    The command imports TARGET and reads the source of its tools. With --answers, the command also
    runs one tool, each round twice, and reports each difference between the two runs. The findings
    are a JSON list on stdout, and sentences on stderr. The comment `# anabranch: replay-safe`
    suppresses the findings of a line. Exit status: 0 no findings, 1 findings, 2 wrong usage.
    """,
    "serve": """Serve the tools of TARGET as an MCP server.

    A target offers every @tool, every HandoffTool instance, every plugin's tool and every MCPServer
    at module level. The keys in ANABRANCH_KEYS (comma-separated, newest first), or a key in your data
    directory, seal the state that clients keep while a question is open. The server stores calls only with --store or
    ANABRANCH_STORE.
    """,
    "chat": """Chat in this terminal with a model that can call tools and work in branches.

    /help lists the commands of the chat. Replies go to stdout, all other output to stderr. Without
    a terminal, the command reads messages from standard input, one in each line. Ctrl-C stops a
    turn and stores the received part of the reply; at the prompt, Ctrl-C ends the program, as
    Ctrl-D does.
    """,
    "web": """Serve the chat as a web page, with forms for the questions of tools.

    Without TARGET the page offers the card game, and needs neither a model nor a network.
    /TOOL name=value calls a tool without the model. The --store keeps conversations and open
    questions across restarts.
    """,
    "worker": """Run the turns of the chats that `anabranch web` accepts, on any machine.

    Pass the same TARGETs, --model, --store and --engine as to the web processes. Any number of
    workers may run. When a worker ends or dies, another worker continues its turns.
    """,
    "browse": """Browse a stored conversation in a full-screen view.

    The key c ends the program, and prints the command that continues at the selected node; q only
    ends the program.
    """,
    "completion": """Print the script with which your shell completes anabranch.

    The script completes commands, options and files, and the tools of a TARGET with their
    parameters. To complete tools, the shell loads a TARGET that is a file.
    """,
}
APPS = {
    "calls": "Show recorded calls, and replay them against the present code.",
    "work": "List, show, retry and cancel unfinished runs of chats, and retry undos of calls.",
    "tree": "Show, label, export and delete stored conversations.",
    "memory": "List, search, show, delete, distill and export notes from earlier work.",
}
GROUPS = {
    "Try a tool": ("demo", "dev", "list", "inspect", "call", "check"),
    "Serve and chat": ("serve", "chat", "web", "worker"),
    "Look at stored data": ("calls", "work", "tree", "memory", "browse"),
    "Set up": ("completion", "--help", "--version"),
}
GROUP_OF = {
    name: group
    for place, (title, names) in enumerate(GROUPS.items())
    for group in (Group(title, sort_key=place),)
    for name in names
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

HOMES = {
    **dict.fromkeys(GROUPS["Try a tool"], "_tool_commands"),
    **dict.fromkeys(("serve", "web", "worker"), "_server_commands"),
    **dict.fromkeys(("chat", "browse"), "_chat_commands"),
    "completion": "_commands",
}
"""The modules of the commands."""


def _needed(command: str) -> str:
    if command not in NEEDS:
        return ""
    named, extra, package = NEEDS[command]
    if find_spec(package) is not None:
        return f" The command needs the {named}."
    from anabranch.errors import install_command

    return (
        f" The command needs the {named}, which is not fully installed: `{install_command(extra)}`"
    )


def completion_command(
    shell: Annotated[
        Literal["zsh", "bash", "fish", "powershell"] | None,
        Parameter(help="Shell. Default: the shell that runs the command."),
    ] = None,
    /,
) -> None:
    from cyclopts.completion import ShellDetectionError, detect_shell

    from anabranch.cli._output import print_text

    try:
        named = shell or detect_shell()
    except ShellDetectionError:
        raise UsageError(
            "Your shell is unknown. Name it: anabranch completion bash, zsh, fish or powershell."
        ) from None
    print_text(app.generate_completion(shell=named))


for _name, _help in HELP.items():
    app.command(
        f"anabranch.cli.{HOMES[_name]}:{_name}_command",
        name=_name,
        group=GROUP_OF[_name],
        help=f"{_help.rstrip()}{_needed(_name)}",
        help_epilogue=EXAMPLES[_name],
        help_format="markdown",
        version_flags=("--version",),
    )
for _name, _help in APPS.items():
    _module = f"anabranch.cli._{_name}_commands:{_name}_app"
    app.command(_module, name=_name, group=GROUP_OF[_name], help=_help)
for _name in ("--help", "--version"):
    app[_name].group = GROUP_OF[_name]

"""The table of all commands of a session, in the order of ``/help``, and ``/help`` itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from textwrap import wrap

from anabranch.chat._commands.command import Command, Outputs, unknown_command
from anabranch.chat._commands.conversation_commands import CONVERSATION_COMMANDS
from anabranch.chat._commands.file_commands import FILE_COMMANDS
from anabranch.chat._commands.navigation_commands import NAVIGATION_COMMANDS
from anabranch.chat._commands.settings_commands import SETTINGS_COMMANDS
from anabranch.chat._commands.thread_commands import THREAD_COMMANDS
from anabranch.chat._session.session_output import Output
from anabranch.chat._session.session_state import SessionState


async def _help(session: SessionState, name: str | None = None) -> Outputs:
    """Explain one command, or those of one group, or list all."""
    if name is not None and name.lower() in GROUPS:
        return Output("system", _listing(GROUPS[name.lower()]))
    if name is not None:
        command = COMMANDS.get(name.removeprefix("/"))
        if command is None:
            raise unknown_command(name.removeprefix("/"), COMMANDS)
        return Output("system", f"{command.call}: {command.help}")
    columns = session.dependencies.columns
    lines = [_listing(COMMANDS.values()) if columns is None else _overview(columns())]
    tools = ", ".join(f"/{tool}" for tool in session.agent.tools)
    if tools:
        lines.append(f"Tools that you can call without a model (/tool name=value …): {tools}.")
    lines.append(
        "All other text goes to the model. “message /command” sends the message and then runs the"
        " command; a message that starts with a slash needs two."
    )
    return Output("system", "\n".join(lines))


def _listing(commands: Iterable[Command]) -> str:
    """Return a line for each command."""
    listed = list(commands)
    width = max(len(each.call) for each in listed)
    return "\n".join(f"{each.call:{width}}  {each.help}" for each in listed)


def _overview(columns: int) -> str:
    """Return the commands by groups, on lines of at most ``columns`` characters."""
    indent = max(map(len, GROUPS)) + 2
    lines: list[str] = []
    for title, commands in GROUPS.items():
        calls = "  ".join(each.call.replace(" ", "\xa0") for each in commands)
        first = f"{title:{indent}}"
        lines += wrap(calls, columns, initial_indent=first, subsequent_indent=" " * indent)
    explained = "/help GROUP or /help COMMAND explains them."
    return "\n".join([*(line.replace("\xa0", " ") for line in lines), explained])


_HELP = Command("help", "[COMMAND]", "List the commands, or explain one of them.", _help)

GROUPS: Mapping[str, Sequence[Command]] = {
    "move": NAVIGATION_COMMANDS,
    "talk": (*CONVERSATION_COMMANDS, *FILE_COMMANDS),
    "threads": THREAD_COMMANDS,
    "session": (_HELP, *SETTINGS_COMMANDS),
}
"""The commands by topic."""

COMMANDS: Mapping[str, Command] = {
    command.name: command for commands in GROUPS.values() for command in commands
}
"""All commands, by name."""

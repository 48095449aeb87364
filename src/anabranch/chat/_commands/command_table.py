"""The table of all commands of a session, in the order in which ``/help`` lists them."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.chat._commands.command import Command, Outputs, unknown_command
from anabranch.chat._commands.conversation_commands import CONVERSATION_COMMANDS
from anabranch.chat._commands.navigation_commands import NAVIGATION_COMMANDS
from anabranch.chat._commands.prompt_commands import PROMPT_COMMANDS
from anabranch.chat._commands.settings_commands import SETTINGS_COMMANDS
from anabranch.chat._commands.thread_commands import THREAD_COMMANDS
from anabranch.chat._session.session_output import Output
from anabranch.chat._session.session_state import SessionState

__all__ = ["COMMANDS"]


async def _help(session: SessionState, name: str | None = None) -> Outputs:
    """Explain one command, or list all."""
    if name is not None:
        command = COMMANDS.get(name.removeprefix("/"))
        if command is None:
            raise unknown_command(name.removeprefix("/"), COMMANDS)
        return Output("system", f"{command.call}: {command.help}")
    width = max(len(each.call) for each in COMMANDS.values())
    lines = [f"{each.call:{width}}  {each.help}" for each in COMMANDS.values()]
    tools = ", ".join(f"/{tool}" for tool in session.agent.tools)
    if tools:
        lines.append(f"Tools, called without a model (/tool name=value …): {tools}.")
    lines.append(
        "Anything else is said to the model. “message /command” says it and then runs the command;"
        " a message that is to begin with a slash begins with two."
    )
    return Output("system", "\n".join(lines))


_HELP = Command("help", "[COMMAND]", "List the commands, or explain one of them.", _help)

COMMANDS: Mapping[str, Command] = {
    command.name: command
    for command in (
        *NAVIGATION_COMMANDS,
        *CONVERSATION_COMMANDS,
        *THREAD_COMMANDS,
        *PROMPT_COMMANDS,
        _HELP,
        *SETTINGS_COMMANDS,
    )
}
"""All commands, by name."""

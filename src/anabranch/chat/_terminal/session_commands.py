"""All commands of a session, and the execution of a typed line: message, command, or both.

A line that fails returns an error as its output, and leaves the session and the tree intact.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from textwrap import wrap

from anabranch._aio import run_shielded
from anabranch.chat._terminal.conversation_commands import CONVERSATION_COMMANDS, call, say
from anabranch.chat._terminal.navigation_commands import NAVIGATION_COMMANDS
from anabranch.chat._terminal.session import Command, Outputs, Session, unknown_command
from anabranch.chat._terminal.session_output import (
    EXPECTED,
    Action,
    Output,
    SessionError,
    error_text,
)
from anabranch.chat._terminal.thread_commands import THREAD_COMMANDS
from anabranch.chat._terminal.typed_input import read_line

logger: logging.Logger = logging.getLogger("anabranch.chat")


async def enter(session: Session, line: str) -> list[Output]:
    """Carry out a line, and return its output, errors included."""
    read = read_line(line, partial(_accepts, session))
    steps: list[Callable[[], Awaitable[Outputs]]] = []
    if read.message is not None:
        steps.append(partial(say, session, read.message))
    if read.command is not None:
        steps.append(partial(_run_command, session, read.command, read.rest, line.strip()))
    return await _carry_out(session, steps)


async def send(session: Session, text: str) -> list[Output]:
    """Send ``text`` as a message, even if it starts with a slash."""
    return await _carry_out(session, [partial(say, session, text)])


async def _carry_out(
    session: Session, steps: Iterable[Callable[[], Awaitable[Outputs]]]
) -> list[Output]:
    outputs: list[Output] = []
    for step in steps:
        try:
            found = await step()
            outputs += found if isinstance(found, list) else [found]
        except asyncio.CancelledError:
            await run_shielded(session.cursor.catch_up())
            raise
        except Exception as error:  # a failed line must not end the session
            if not isinstance(error, EXPECTED):
                logger.exception("a line of input has failed")
            outputs.append(Output("error", error_text(error)))
            break
        finally:
            session.cursor.add_to_history()
    return outputs


def _accepts(session: Session, name: str, rest: str) -> bool:
    command = COMMANDS.get(name)
    return command.accepts(rest) if command is not None else name in session.agent.tools


async def _run_command(session: Session, name: str, rest: str, line: str) -> Outputs:
    command = COMMANDS.get(name)
    if command is not None:
        return await command.run(session, *command.arguments(rest))
    tools = session.agent.tools
    if name in tools:
        return await call(session, name, rest)
    if line == f"/{name}" or "/" not in name:
        raise unknown_command(name, [*COMMANDS, *tools])
    raise SessionError(f'Unknown command /{name}. To send text that starts with "/", type "//".')


MAX_LISTED = 60


async def _act(session: Session, *, action: Action) -> Outputs:
    del session
    return Output("system", "", action=action)


async def _set_verbose(session: Session, *, verbose: bool) -> Outputs:
    session.settings.verbose = verbose
    shown = "the work of tools and branches" if verbose else "answers only"
    return Output("system", f"The chat now shows {shown}.")


_clear, _exit = partial(_act, action="clear"), partial(_act, action="exit")
_verbose, _quiet = partial(_set_verbose, verbose=True), partial(_set_verbose, verbose=False)


async def _config(session: Session, *words: str) -> Outputs:
    match words:
        case ():
            return Output("system", session.settings.listing())
        case ("set", name, value):
            session.configure(name, value)
            return Output("system", f"{name} = {value}")
        case _:
            raise SessionError("Write /config, or /config set NAME VALUE.")


async def _models(session: Session, part: str = "") -> Outputs:
    models = session.models
    found = [name for name in models.names() if part in name] if models is not None else []
    listed = found[:MAX_LISTED]
    if len(found) > MAX_LISTED:
        listed.append(f"… and {len(found) - MAX_LISTED} more; /models TEXT filters them.")
    current = f"Now answering: {session.model_name}. /switch MODEL changes that."
    return Output("system", "\n".join([current, *listed]))


async def _switch(session: Session, name: str) -> Outputs:
    models = session.models
    if models is None:
        raise SessionError(f"This session cannot switch to {name!r}: it has no other models.")
    model = models.open(name)
    session.switch(model, name)
    lines = [f"{name} answers from now on.", session.agent.tools.excess(model)]
    return Output("system", "\n".join(filter(None, lines)))


async def _help(session: Session, name: str | None = None) -> Outputs:
    if name is not None and name.lower() in GROUPS:
        return Output("system", _listing(GROUPS[name.lower()]))
    if name is not None:
        command = COMMANDS.get(name.removeprefix("/"))
        if command is None:
            raise unknown_command(name.removeprefix("/"), COMMANDS)
        return Output("system", f"{command.call}: {command.help}")
    columns = session.columns
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
    listed = list(commands)
    width = max(len(each.call) for each in listed)
    return "\n".join(f"{each.call:{width}}  {each.help}" for each in listed)


def _overview(columns: int) -> str:
    indent = max(map(len, GROUPS)) + 2
    lines: list[str] = []
    for title, commands in GROUPS.items():
        calls = "  ".join(each.call.replace(" ", "\xa0") for each in commands)
        first = f"{title:{indent}}"
        lines += wrap(calls, columns, initial_indent=first, subsequent_indent=" " * indent)
    explained = "/help GROUP or /help COMMAND explains them."
    return "\n".join([*(line.replace("\xa0", " ") for line in lines), explained])


GROUPS: Mapping[str, Sequence[Command]] = {
    "move": NAVIGATION_COMMANDS,
    "talk": CONVERSATION_COMMANDS,
    "threads": THREAD_COMMANDS,
    "session": (
        Command("help", "[COMMAND]", "List the commands, or explain a command or a group.", _help),
        Command("clear", "", "Clear the screen; the conversation stays.", _clear),
        Command("exit", "", "End the chat; the conversation stays stored.", _exit),
        Command("verbose", "", "Show the work of tools and branches.", _verbose),
        Command("quiet", "", "Show only answers.", _quiet),
        Command(
            "config", "[set] [NAME] [VALUE…]", "Show the settings, or change a setting.", _config
        ),
        Command(
            "models", "[TEXT]", "Show the current model, and the names that contain TEXT.", _models
        ),
        Command("switch", "MODEL", "Let another model answer from now on.", _switch),
    ),
}

COMMANDS: Mapping[str, Command] = {
    command.name: command for commands in GROUPS.values() for command in commands
}

"""The table of ``/commands``: names, arguments, help, and who carries them out.

Owns how a command's arguments are read, and ``/help``. A command's usage says what it takes, and
is both what is shown and what is checked: ``NODE`` must be there, ``[N]`` may be, and ``TEXT…``
takes the rest of the line as it is. What commands do is in the modules that register them.
"""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeAlias

from anabranch.chat._session.output import Output, SessionError

if TYPE_CHECKING:
    from anabranch.chat._session.session import Session

__all__ = ["COMMANDS", "Command", "Outputs", "command", "help_text", "unknown"]

P = ParamSpec("P")
Outputs: TypeAlias = Output | list[Output]


@dataclass(frozen=True, slots=True)
class Command:
    """One command.

    Attributes:
        name: without the slash.
        usage: its arguments, see the module.
        help: what it does, in a sentence.
        run: does it; takes as many texts as there are arguments in the line.
    """

    name: str
    usage: str
    help: str
    run: Callable[..., Awaitable[Outputs]]

    @property
    def least(self) -> int:
        """How many arguments must be there."""
        return sum(not word.startswith("[") for word in self.usage.split())

    def takes(self, text: str) -> bool:
        """Whether ``text`` has as many words as the command has arguments."""
        words, usage = len(text.split()), self.usage.split()
        return words >= self.least and ("…" in self.usage or words <= len(usage))

    def arguments(self, text: str) -> list[str]:
        """Return the arguments in ``text``.

        Raises:
            SessionError: there are too few, or too many.
        """
        if not self.takes(text):
            raise SessionError(f"Write /{self.name} {self.usage}".rstrip() + ".")
        most = len(self.usage.split())
        return text.split(maxsplit=most - 1) if "…" in self.usage else text.split()


COMMANDS: dict[str, Command] = {}


def command(
    name: str, usage: str, told: str
) -> Callable[
    [Callable[Concatenate[Session, P], Awaitable[Outputs]]],
    Callable[Concatenate[Session, P], Awaitable[Outputs]],
]:
    """Register what is decorated as ``/name``."""

    def register(
        run: Callable[Concatenate[Session, P], Awaitable[Outputs]],
    ) -> Callable[Concatenate[Session, P], Awaitable[Outputs]]:
        COMMANDS[name] = Command(name, usage, told, run)
        return run

    return register


def unknown(name: str, known: Iterable[str]) -> SessionError:
    """Return the error for a command that does not exist, naming what may have been meant."""
    near = difflib.get_close_matches(name, list(known), n=1)
    hint = f" Did you mean /{near[0]}?" if near else ""
    return SessionError(f"There is no command /{name}.{hint} /help lists them.")


def help_text(name: str | None, tools: Iterable[str]) -> str:
    """Return help on one command, or on all.

    Raises:
        SessionError: there is no such command.
    """
    if name is not None:
        wanted = COMMANDS.get(name.removeprefix("/"))
        if wanted is None:
            raise unknown(name.removeprefix("/"), COMMANDS)
        return f"{_call(wanted)}: {wanted.help}"
    width = max(len(_call(each)) for each in COMMANDS.values())
    lines = [f"{_call(each):{width}}  {each.help}" for each in COMMANDS.values()]
    called = ", ".join(f"/{tool}" for tool in tools)
    if called:
        lines.append(f"Tools, called without a model (/tool name=value …): {called}.")
    lines.append(
        "Anything else is said to the model. “message /command” says it and then runs the command;"
        " a message that is to begin with a slash begins with two."
    )
    return "\n".join(lines)


def _call(each: Command) -> str:
    return f"/{each.name} {each.usage}".rstrip()

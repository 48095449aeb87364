"""A command of a session: its name, usage, help, and the function that carries it out.

``/help`` shows the usage, and the session checks lines against it: ``NODE`` is required, ``[N]`` is
optional, and ``TEXT…`` takes the rest of the line unchanged.
"""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Concatenate, TypeAlias

from anabranch.chat._session.session_output import Output, SessionError
from anabranch.chat._session.session_state import SessionState

Outputs: TypeAlias = Output | list[Output]
"""The output of a command for the front end."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command.

    name: the name without the slash.
    usage: the arguments, in the notation of this module.
    help: the command's effect, in one sentence.
    run: carries the command out on a session's state, with one text for each argument.
    """

    name: str
    usage: str
    help: str
    run: Callable[Concatenate[SessionState, ...], Awaitable[Outputs]]

    @property
    def call(self) -> str:
        """The written form: ``/name`` and the usage."""
        return f"/{self.name} {self.usage}".rstrip()

    @property
    def min_arguments(self) -> int:
        """The number of required arguments."""
        return sum(not word.startswith("[") for word in self.usage.split())

    def accepts(self, text: str) -> bool:
        """Return whether ``text`` has as many words as the command takes arguments."""
        words, usage = len(text.split()), self.usage.split()
        return words >= self.min_arguments and ("…" in self.usage or words <= len(usage))

    def arguments(self, text: str) -> list[str]:
        """Return the arguments in ``text``.

        Raises:
            SessionError: if ``text`` has too few or too many words.
        """
        if not self.accepts(text):
            raise SessionError(f"Write {self.call}.")
        count = len(self.usage.split())
        return text.split(maxsplit=count - 1) if "…" in self.usage else text.split()


def unknown_command(name: str, known: Iterable[str]) -> SessionError:
    """Return the error for an unknown command, with the most similar name."""
    near = difflib.get_close_matches(name, list(known), n=1)
    hint = f" Did you mean /{near[0]}?" if near else ""
    return SessionError(f"Unknown command /{name}.{hint} /help lists the commands.")

"""The grammar of a line of input: a message, a command, or a message followed by a command."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

BARE = {"clear": "clear", "exit": "exit", "quit": "exit"}
"""Words that are commands without a slash, if they stand alone."""

_COMMAND = re.compile(r"\s/(?P<name>[\w-]+)(?=\s|$)")


@dataclass(frozen=True, slots=True)
class InputLine:
    """A line, taken apart.

    Attributes:
        message: what to say first, ``None`` if nothing.
        command: the name of the command to run then, without its slash, ``None`` if none.
        rest: the text after that name.
    """

    message: str | None = None
    command: str | None = None
    rest: str = ""


def read_line(text: str, accepts: Callable[[str, str], bool]) -> InputLine:
    """Take a line apart.

    Args:
        text: the line.
        accepts: whether there is a command of this name that accepts this rest. Only then is it a
            command at the end of a message: a path or a fraction is part of the message.
    """
    line = text.strip()
    if line in BARE:
        return InputLine(command=BARE[line])
    if line.startswith("//"):
        return InputLine(message=line[1:])
    if line.startswith("/"):
        name, *rest = line[1:].split(maxsplit=1) or [""]
        return InputLine(command=name, rest="".join(rest))
    found = next(iter(list(_COMMAND.finditer(line))[-1:]), None)
    if found is not None and accepts(found["name"], line[found.end() :]):
        message = line[: found.start()].rstrip()
        return InputLine(message, found["name"], line[found.end() :].strip())
    return InputLine(message=line or None)

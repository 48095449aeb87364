"""How a line of input is read: what is said, and what is commanded.

Owns the grammar of lines. What a command's name stands for is asked of whoever knows.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Line", "read_line"]

BARE = {"clear": "clear", "exit": "exit", "quit": "exit"}
"""Words that are commands by themselves."""

_COMMAND = re.compile(r"\s/(?P<name>[\w-]+)(?=\s|$)")


@dataclass(frozen=True, slots=True)
class Line:
    """A line, understood.

    Attributes:
        message: what is said first, if anything is.
        command: the name of what is run then, without its slash, if anything is.
        rest: what follows on that name.
    """

    message: str | None = None
    command: str | None = None
    rest: str = ""


def read_line(text: str, fits: Callable[[str, str], bool]) -> Line:
    """Read a line; ``fits`` tells whether a command of that name takes such a rest.

    Only what fits is a command at the end of a message: paths and fractions are not.
    """
    line = text.strip()
    if line in BARE:
        return Line(command=BARE[line])
    if line.startswith("//"):
        return Line(message=line[1:])
    if line.startswith("/"):
        name, *rest = line[1:].split(maxsplit=1) or [""]
        return Line(command=name, rest="".join(rest))
    found = next(iter(list(_COMMAND.finditer(line))[-1:]), None)
    if found is not None and fits(found["name"], line[found.end() :]):
        said = line[: found.start()].rstrip()
        return Line(said, found["name"], line[found.end() :].strip())
    return Line(message=line or None)

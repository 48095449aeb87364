"""Reads the lines that a user types in a session: messages, commands, answers, tool arguments and paths."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast
from urllib.request import url2pathname

from pydantic import JsonValue

from anabranch._schemas import read_pairs, split_pairs
from anabranch._text import read_json
from anabranch.agents import AgentTool, BranchSelfTool, CalledTool
from anabranch.chat._terminal.session_output import SessionError
from anabranch.errors import ToolError
from anabranch.messages import ElicitReply, ElicitRequest, UrlRequest

BARE = {"clear": "clear", "exit": "exit", "quit": "exit"}
"""Words that are commands without a slash when the line holds nothing else."""

_COMMAND = re.compile(r"\s/(?P<name>[\w-]+)(?=\s|$)")


@dataclass(frozen=True, slots=True)
class InputLine:
    """A message to send first, and a command with the ``rest`` of its text, if there are any."""

    message: str | None = None
    command: str | None = None
    rest: str = ""


def read_line(text: str, accepts: Callable[[str, str], bool]) -> InputLine:
    """Split a line; if no command ``accepts`` its end, a slash there belongs to the message."""
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


HOW_TO_ANSWER = (
    'Write /answer with name=value …, or with {"name": value, …}; or /answer decline, or'
    " /answer cancel."
)


def read_answer(request: ElicitRequest | UrlRequest, text: str) -> ElicitReply:
    match text.strip():
        case "decline":
            return ElicitReply(action="decline")
        case "cancel":
            return ElicitReply(action="cancel")
        case typed if isinstance(request, UrlRequest):
            if typed == "accept":
                return ElicitReply(action="accept")
            raise SessionError("Write /answer accept, /answer decline or /answer cancel.")
        case typed:
            try:
                content = _read_values(typed, request.requested_schema, HOW_TO_ANSWER)
            except ValueError as error:
                raise SessionError(str(error)) from None
            return ElicitReply(action="accept", content=content)


def read_arguments(tool: AgentTool, text: str) -> dict[str, JsonValue]:
    # branch_self reads a user's lists and words in the same way as a model's.
    schema = tool.spec.input_schema
    known = cast("dict[str, JsonValue]", schema.get("properties", {}))
    usage = f"Write /{tool.name} name=value …; names: {', '.join(known) or 'none'}."
    typed = {} if isinstance(tool, BranchSelfTool) else schema
    try:
        arguments = _read_values(text or "{}", typed, usage)
    except ValueError as error:
        raise ToolError(str(error)) from None
    if isinstance(tool, CalledTool):
        # Tools ignore arguments that hosts add, but a user who types a name means it.
        unknown = [name for name in arguments if name not in known]
        if unknown and not schema.get("additionalProperties"):
            raise ToolError(f"There is no parameter {unknown[0]!r}. {usage}")
        tool.tool.validate(arguments)
    return arguments


def number_in(text: str, count: int) -> int:
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text[:9]) <= count:
        raise SessionError(f"{text!r} is not a number from 1 to {count}.")
    return int(text) - 1


def _read_values(text: str, schema: dict[str, JsonValue], usage: str) -> dict[str, JsonValue]:
    try:
        if text.startswith("{"):
            return cast("dict[str, JsonValue]", read_json(text))
        return read_pairs(split_pairs(text), schema)
    except ValueError as error:
        raise ValueError(f"{str(error).rstrip('.')}. {usage}") from None


_LOCAL: Final = re.compile(r"file:(?://(?:localhost)?)?(?=/)", re.IGNORECASE)
"""The part before the path in the address of a file on this machine."""


def typed_paths(typed: str) -> list[Path]:
    """Return the paths in ``typed``: one, or several, split as a shell does.

    Terminals write the names of dropped files in that form, or as ``file://`` addresses. If one of
    several words is no file, the whole text is one path, which cannot be read.
    """
    whole = _expanded(typed)
    if _exists(whole):
        return [Path(whole)]
    try:
        words = [_expanded(word) for word in shlex.split(typed)]
    except ValueError:  # an unclosed quotation mark
        words = []
    is_read = len(words) == 1 or all(map(_exists, words))
    return [Path(each) for each in (words if words and is_read else [whole])]


def completed_paths(typed: str) -> list[str]:
    """Return the paths that start with ``typed``; hidden files only after a typed dot."""
    quote = typed[:1] if typed[:1] in ("'", '"') else ""
    folder, name = os.path.split(typed[len(quote) :])
    try:
        with os.scandir(_expanded(folder) or ".") as entries:
            found = sorted((each.name, each.is_dir()) for each in entries)
    except (OSError, ValueError):
        return []
    before = typed[: len(typed) - len(name)]
    return [
        f"{before}{each}/" if is_folder else f"{before}{each}{quote}"
        for each, is_folder in found
        if each.startswith(name) and (name or not each.startswith(".")) and each.isprintable()
    ]


def _expanded(typed: str) -> str:
    if (address := _LOCAL.match(typed)) is not None:
        return url2pathname(typed[address.end() :])
    return os.path.expanduser(typed)  # noqa: PTH111 - pathlib raises for an unknown user


def _exists(path: str) -> bool:
    return os.path.exists(path)  # noqa: PTH110 - pathlib raises for a name that is too long

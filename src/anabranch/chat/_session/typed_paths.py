"""Reads file paths that a user types or drops on the terminal, and completes them on Tab."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import Final
from urllib.request import url2pathname

_LOCAL: Final = re.compile(r"file:(?://(?:localhost)?)?(?=/)", re.IGNORECASE)
"""The part before the path in the address of a file on this machine."""


def typed_paths(typed: str) -> list[Path]:
    """Return the paths in a line.

    The line is one path if a file has that name. Otherwise the function splits the line as a shell
    does, with quotes and backslashes, because terminals write the names of dropped files in that
    form, or as ``file://`` addresses. A line with a word that is no file is one path, which cannot be
    read.
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
    """Return the paths that start with ``typed``, folders with a slash at the end.

    Hidden files appear only after a typed dot. Names that a terminal cannot show are left out.
    """
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
    """Return the path of a ``file://`` address, or a path with the user's home in place of ``~``."""
    if (address := _LOCAL.match(typed)) is not None:
        return url2pathname(typed[address.end() :])
    return os.path.expanduser(typed)  # noqa: PTH111 - pathlib raises for an unknown user


def _exists(path: str) -> bool:
    return os.path.exists(path)  # noqa: PTH110 - pathlib raises for a name that is too long

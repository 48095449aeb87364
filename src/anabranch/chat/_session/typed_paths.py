"""Paths of files that a user types, or drops on the terminal, and how Tab completes the paths."""

from __future__ import annotations

import os
import shlex
from pathlib import Path


def typed_paths(typed: str) -> list[Path]:
    """Return the paths in a line.

    The line is one path if a file has that name. Otherwise the line is read as a shell reads words,
    with quotes and backslashes, as terminals write the names of dropped files. A line whose words
    are not all files is one path that cannot be read.
    """
    whole = _expanded(typed)
    if _exists(whole):
        return [Path(whole)]
    try:
        words = [_expanded(word) for word in shlex.split(typed)]
    except ValueError:  # a quotation mark without its second
        words = []
    is_read = len(words) == 1 or all(map(_exists, words))
    return [Path(each) for each in (words if words and is_read else [whole])]


def completed_paths(typed: str) -> list[str]:
    """Return the paths that begin as ``typed``, folders with a slash at the end.

    Hidden files need their dot. Names that a terminal cannot show are left out.
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
    """Return a path with the user's home in place of ``~``."""
    return os.path.expanduser(typed)  # noqa: PTH111 - pathlib raises for an unknown user


def _exists(path: str) -> bool:
    return os.path.exists(path)  # noqa: PTH110 - pathlib raises for a name that is too long

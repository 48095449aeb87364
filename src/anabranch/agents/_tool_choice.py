"""Chooses tools by name or by pattern, as ``only=`` and ``without=`` of several edges do."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase


class ToolChoice:
    """The tools to offer.

    Args:
        only: names, or patterns such as ``issues_*``; none for all tools.
        without: names, or patterns, of tools to leave out.

    Raises:
        TypeError: one of them is one text, whose characters would be the names.
    """

    def __init__(self, only: Iterable[str] = (), without: Iterable[str] = ()) -> None:
        for name, given in (("only", only), ("without", without)):
            if isinstance(given, str):
                raise TypeError(f"{name}= takes a list of names, got {given!r}. Write [{given!r}].")
        self._only = tuple(only) or ("*",)
        self._without = tuple(without)

    def takes(self, *names: str) -> bool:
        """Return whether the tool with any of these names is offered."""
        return _match(self._only, names) and not _match(self._without, names)


def _match(patterns: Iterable[str], names: Iterable[str]) -> bool:
    tried = tuple(names)
    return any(fnmatchcase(name, each) for each in patterns for name in tried)

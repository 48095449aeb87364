"""Options from files: ``[tool.anabranch]`` of the project's ``pyproject.toml``, and the user's own file.

A table of a command's name (``[tool.anabranch.serve]``) has options of that command, and must not have
others; what is beside such tables is for every command that has the option. A flag wins over an
environment variable, that over the project's file, and that over the user's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cyclopts import App, ArgumentCollection, CycloptsError
from cyclopts.config import Toml
from platformdirs import user_config_path

from anabranch._terminal.exits import UsageError

PROJECT = ("tool", "anabranch")


class ConfigurationFile:
    """One file, as a source of options that were not given otherwise."""

    def __init__(self, toml: Toml) -> None:
        self._toml = toml

    def __call__(self, app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
        """Add what the file has to ``arguments``.

        Raises:
            UsageError: it cannot be read, or is no TOML.
            CycloptsError: it has an option that the command does not have.
        """
        try:
            self._toml(app, commands, arguments)
        except CycloptsError as error:
            if error.__cause__ is None:
                raise
            path = self._toml.source
            raise UsageError(
                f"{path} cannot be read: {error.__cause__}. Correct the file."
            ) from error


def configuration_files() -> list[ConfigurationFile]:
    """Return the sources of options, the first of which wins."""
    user = user_config_path("anabranch", appauthor=False) / "config.toml"
    return [
        *map(ConfigurationFile, _tables("pyproject.toml", root_keys=PROJECT, search_parents=True)),
        *map(ConfigurationFile, _tables(user)),
    ]


def _tables(path: Any, **options: Any) -> Iterator[Toml]:  # noqa: ANN401 - as Toml takes them
    """Yield the command's own table, and then what is for all commands."""
    yield Toml(path, **options)
    yield Toml(path, use_commands_as_keys=False, allow_unknown=True, **options)

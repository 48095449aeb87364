"""Options from files: ``[tool.anabranch]`` of the project's ``pyproject.toml``, and the user's own file.

A table named after a command (``[tool.anabranch.serve]``) may have only options of that command. Options
outside such tables are for every command that has them. A flag wins over an environment variable, the
variable over the project's file, and the project's file over the user's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cyclopts import App, ArgumentCollection, CycloptsError
from cyclopts.config import Toml
from platformdirs import user_config_path

from anabranch._terminal import UsageError

PROJECT = ("tool", "anabranch")


class ConfigurationFile:
    """A file as a source of options that the command line leaves out."""

    def __init__(self, toml: Toml) -> None:
        self._toml = toml

    def __call__(self, app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
        """Add the file's options to ``arguments``.

        Raises:
            UsageError: if the file cannot be read, or is no TOML.
            CycloptsError: if the file has an option that the command does not have.
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
    """Yield the command's own table, and then the options for all commands."""
    yield Toml(path, **options)
    yield Toml(path, use_commands_as_keys=False, allow_unknown=True, **options)

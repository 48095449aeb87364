"""The files that hold options for the commands: the project's ``pyproject.toml``, and the user's own.

``[tool.anabranch]`` may hold options for all commands, and a table such as
``[tool.anabranch.serve]`` those of one command. A flag wins over a variable, the variable over the
project's file, and the project's file over the user's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeAlias, Union, cast, get_args, get_origin

from cyclopts import App, Argument, ArgumentCollection
from cyclopts.config import Dict
from platformdirs import user_config_path

from anabranch._terminal import UsageError
from anabranch._text import json_line
from anabranch.cli._commands import app as root

Table: TypeAlias = Mapping[str, Any]
Options: TypeAlias = Mapping[str, Argument]


def configuration_files() -> list[ConfigurationFile]:
    """Return the project's file and the user's, as far as they exist."""
    try:
        here = Path.cwd()
        folders = [here, *here.parents]
    except FileNotFoundError:  # the working directory is deleted
        folders = []
    projects = (folder / "pyproject.toml" for folder in folders)
    project = next((file for file in projects if file.is_file()), None)
    user = user_config_path("anabranch", appauthor=False) / "config.toml"
    files = [] if project is None else [ConfigurationFile(project, "tool", "anabranch")]
    return [*files, ConfigurationFile(user)] if user.is_file() else files


class ConfigurationFile:
    """A file with options; ``keys`` lead to its table for all commands."""

    def __init__(self, path: Path, *keys: str) -> None:
        self._path = path
        self._keys = keys

    def __call__(self, app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
        """Check the tables of a command, and give their values to its ``arguments``."""
        own, tables = _options_of(arguments), [self._read()]
        for name in commands:
            inner = tables[-1].get(name)
            tables.append(cast("Table", inner) if isinstance(inner, dict) else {})
        for depth, table in enumerate(tables):
            self._check(table, commands[:depth], own if depth in {0, len(commands)} else {})
        for table in (tables[-1], tables[0]):  # an option that has a value keeps it
            values = ((name, each) for name, each in table.items() if not isinstance(each, dict))
            given = {name: each for name, each in values if _typed(name) in own}
            Dict(given, source=str(self._path))(app, (), arguments)

    def _read(self) -> Table:
        import tomllib

        try:
            table: object = tomllib.loads(self._path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise UsageError(f"{self._path} cannot be read: {error}. Correct the file.") from error
        for number, key in enumerate(self._keys, 1):
            table = cast("Table", table).get(key, {})
            if not isinstance(table, dict):
                place = ".".join(self._keys[:number])
                raise UsageError(f"{place} in {self._path} is no table. Correct the file.")
        return cast("Table", table)

    def _check(self, table: Table, commands: Sequence[str], own: Options) -> None:
        """Check the table of ``commands``; the table for all commands may have any command's options."""
        inner = _commands_in(commands)
        for name, value in table.items():
            if name in inner and isinstance(value, dict):
                continue
            option, wrong = _typed(name), ""
            for options in [own] if option in own or commands else _options_of_all():
                if option in options:
                    kinds, wrong = _kind_of(options[option])
                    if _fits(value, kinds):
                        break
            else:
                if wrong:
                    raise self._unfit(name, value, commands, wrong)
                raise self._unknown(name, value, commands, own)

    def _unfit(self, name: str, value: object, commands: Sequence[str], kind: str) -> UsageError:
        shapes: dict[type, str] = {dict: "a table", list: "a list"}
        plain = json_line(value) if isinstance(value, str | int | float) else str(value)
        given = shapes.get(type(value), plain)
        return UsageError(f"{name} in {self._place(commands)} must be {kind}, not {given}.")

    def _unknown(
        self, name: str, value: object, commands: Sequence[str], own: Options
    ) -> UsageError:
        from difflib import get_close_matches

        if isinstance(value, dict):
            kind, known = "command", _commands_in(commands)
        else:
            options = [own] if commands else _options_of_all()
            kind, known = "option", [each for one in options for each in one]
        near = get_close_matches(name, known, 1)
        fix = f"Did you mean {near[0]}?" if near else "Remove it."
        if not (near or own) and commands:
            table = ".".join([*self._keys, *commands, _commands_in(commands)[0]])
            fix = f"Give it to one command, such as in [{table}]."
        return UsageError(f"{self._place(commands)} has {name}, which is no {kind}. {fix}")

    def _place(self, commands: Sequence[str]) -> str:
        table = ".".join([*self._keys, *commands])
        return f"[{table}] of {self._path}" if table else str(self._path)


def _typed(name: str) -> str:
    """Return the name of an option as a user types it, without the dashes before it."""
    return name.replace("_", "-")


def _options_of(arguments: ArgumentCollection) -> Options:
    names = ((name, each) for each in arguments for name in each.names)
    return {name[2:]: each for name, each in names if name.startswith("--")}


def _options_of_all() -> Iterator[Options]:
    """Yield the options of each command; commands that load fast come first."""
    for name in _commands_in(()):
        app = root[name]
        inner = _commands_in([name])
        for each in [app[one] for one in inner] if inner else [app]:
            yield _options_of(each.assemble_argument_collection())


def _commands_in(commands: Iterable[str]) -> list[str]:
    app = root
    for name in commands:
        app = app[name]
    return [name for name in app if not name.startswith("-")]


KINDS: dict[object, tuple[tuple[type, ...], str]] = {
    bool: ((bool,), "true or false"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    list: ((str, list), "a text or a list of texts"),
    tuple: ((str, list), "a text or a list of texts"),
}
"""The types of a value in TOML, and their name, by the type of an option; other options take text."""


def _kind_of(option: Argument) -> tuple[tuple[type, ...], str]:
    hint = option.hint
    if get_origin(hint) in {Union, UnionType}:
        hint = next(each for each in get_args(hint) if each is not NoneType)
    return KINDS.get(get_origin(hint) or hint, ((str,), "text"))


def _fits(value: object, kinds: tuple[type, ...]) -> bool:
    if isinstance(value, list):
        return list in kinds and all(isinstance(each, str) for each in cast("list[object]", value))
    return type(value) in kinds

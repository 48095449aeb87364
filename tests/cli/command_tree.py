"""The commands of the command line, read from the parser."""

from collections.abc import Iterator

from cyclopts import App

from anabranch.cli._commands import app


def commands_with(option: str, within: App = app, path: tuple[str, ...] = ()) -> Iterator[str]:
    for name in within:
        if name.startswith("-"):
            continue
        command = within[name]
        if command.default_command is not None:
            options = command.assemble_argument_collection()
            if any(option in each.names for each in options):
                yield " ".join((*path, name))
        yield from commands_with(option, command, (*path, name))

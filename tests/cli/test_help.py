"""``--help`` of every command has a correct example, fits the screen, and needs no extra."""

import io
import json
import shlex
import subprocess
import sys
from collections.abc import Iterator

import pytest
from cyclopts import App
from rich.console import Console

from anabranch.cli._commands import app
from anabranch.errors import install_command
from tests.cli.commands import PAGE, written

EXTRAS = ["ag_ui", "dbos", "fastmcp", "numpy", "pydantic_ai", "sqlalchemy", "textual", "yaml"]
EXTRAS_OF = {"web": "chat", "dev": "chat", "worker": "chat,dbos", "browse": "tui"}
SHELLS = ("bash", "zsh", "fish", "powershell")
BARE = f"""
import contextlib, io, json, sys
sys.modules.update(dict.fromkeys({EXTRAS}))
from anabranch.cli import main
results = []
for arguments in json.load(sys.stdin):
    out = io.TextIOWrapper(io.BytesIO(), "utf-8")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        status = main(arguments)
    out.seek(0)
    results.append([status, out.read()])
print(json.dumps(results))
"""
"""Runs commands where no extra is installed."""


def _names(parent: App, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name in parent:
        if not name.startswith("-"):
            yield (*path, name)
            yield from _names(parent[name], (*path, name))


COMMANDS = [(), *_names(app)]


def _shown(command: tuple[str, ...], columns: int) -> str:
    out = io.StringIO()
    app.help_print(list(command), console=Console(file=out, width=columns))
    return out.getvalue()


@pytest.mark.parametrize("columns", [60, 80])
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_fits_the_screen_and_says_only_defaults_that_say_something(
    command: tuple[str, ...], columns: int
) -> None:
    shown = _shown(command, columns)
    assert [line for line in shown.splitlines() if len(line.rstrip()) > columns] == []
    assert "default: False" not in shown
    assert "default: ()" not in shown


@pytest.mark.parametrize("command", COMMANDS[1:], ids=" ".join)
def test_the_examples_in_the_help_of_a_command_can_be_typed(command: tuple[str, ...]) -> None:
    examples = _shown(command, 200).partition("\nExample")[2].splitlines()[1:]
    typed = [shlex.split(line.partition(">")[0])[1:] for line in examples if line.strip()]
    assert typed
    for words in typed:
        assert words[: len(command)] == list(command)
        app.parse_args(words, exit_on_error=False, print_error=False)


@pytest.mark.usefixtures("cold")
def test_help_and_completion_need_no_extra_and_say_how_to_install_it() -> None:
    helps = [[*command, "--help"] for command in COMMANDS]
    scripts = [["completion", shell] for shell in SHELLS]
    done = subprocess.run(
        [sys.executable, "-c", BARE],
        input=json.dumps([*helps, *scripts]),
        capture_output=True,
        text=True,
        check=True,
    )
    shown = dict(zip(map(tuple, [*helps, *scripts]), json.loads(done.stdout), strict=True))
    assert {arguments: text for arguments, (status, text) in shown.items() if status} == {}
    for command, extra in EXTRAS_OF.items():
        unwrapped = "".join(shown[command, "--help"][1].split())
        assert "".join(install_command(extra).split()) in unwrapped


def test_the_page_of_commands_has_their_present_help() -> None:
    assert PAGE.read_text(encoding="utf-8") == written(), "run `make api` and commit what it writes"

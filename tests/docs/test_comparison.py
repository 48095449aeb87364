"""``docs/comparison.md`` compares three command lines; their own help must confirm the page."""

import io
import re
import subprocess
import sys
from contextlib import redirect_stdout
from importlib.metadata import version

import pytest
from fastmcp.cli.cli import app as fastmcp_app
from rich.console import Console

from anabranch.cli import main
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")


def claims() -> list[str]:
    found: list[str] = re.findall(r"`((?:anabranch|fastmcp|clai)(?: [\w-]+)*)`", PAGE)
    return list(dict.fromkeys(found))


def help_of(program: str, command: list[str]) -> str:
    shown = io.StringIO()
    if program == "anabranch":
        with redirect_stdout(shown):
            assert main([*command, "--help"]) == 0
        return shown.getvalue()
    if program == "fastmcp":
        assert not command or command[0] in fastmcp_app
        fastmcp_app.help_print(command, console=Console(file=shown, width=200))
        return shown.getvalue()
    done = subprocess.run(
        [sys.executable, "-m", "pydantic_ai", *command, "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.parametrize("claim", claims())
def test_the_command_and_its_options_exist(claim: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    program, *words = claim.split()
    command = [word for word in words if not word.startswith("-")]
    shown = help_of(program, command)
    for option in set(words) - set(command):
        assert re.search(rf"(?<![\w-]){option}(?![\w-])", shown), claim


@pytest.mark.parametrize(
    ("program", "package"), [("fastmcp", "fastmcp"), ("clai", "pydantic-ai-slim")]
)
def test_the_page_names_the_versions_that_were_compared(program: str, package: str) -> None:
    major, minor, *_ = version(package).split(".")
    assert f"`{program}` {major}.{minor}" in PAGE

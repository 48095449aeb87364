"""``docs/comparison.md`` says what the three command lines can do; their own help decides."""

import io
import re
import subprocess
import sys
from importlib.metadata import version

import pytest
from cyclopts import App
from fastmcp.cli.cli import app as fastmcp_app
from rich.console import Console

from anabranch.cli._commands import app as anabranch_app
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")
APPS: dict[str, App] = {"anabranch": anabranch_app, "fastmcp": fastmcp_app}


def claims() -> list[str]:
    """The commands of the table, each with its options."""
    found: list[str] = re.findall(r"`((?:anabranch|fastmcp|clai)(?: [\w-]+)*)`", PAGE)
    return list(dict.fromkeys(found))


def help_of(program: str, command: list[str]) -> str:
    if program in APPS:
        shown = io.StringIO()
        APPS[program].help_print(command, console=Console(file=shown, width=200))
        return shown.getvalue()
    done = subprocess.run(
        [sys.executable, "-m", "pydantic_ai", *command, "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.parametrize("claim", claims())
def test_the_command_and_its_options_exist(claim: str) -> None:
    program, *words = claim.split()
    command = [word for word in words if not word.startswith("-")]
    if program in APPS:
        assert not command or command[0] in APPS[program], claim
    shown = help_of(program, command)
    for option in set(words) - set(command):
        assert re.search(rf"(?<![\w-]){option}(?![\w-])", shown), claim


@pytest.mark.parametrize(
    ("program", "package"), [("fastmcp", "fastmcp"), ("clai", "pydantic-ai-slim")]
)
def test_the_page_names_the_versions_that_were_compared(program: str, package: str) -> None:
    major, minor, *_ = version(package).split(".")
    assert f"`{program}` {major}.{minor}" in PAGE

"""Options from files: the project's pyproject.toml, and the user's own."""

from pathlib import Path
from typing import Any

import pytest
from platformdirs import user_config_path

from anabranch.cli import main

TOOL = """
from anabranch import BranchContext, tool

@tool
async def ask(ctx: BranchContext) -> str:
    return (await ctx.sample("Why?")).text
"""


class Configured:
    """A project below which the commands run, and a user's file; a test may write both."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.project = folder / "pyproject.toml"
        self.user = user_config_path("anabranch", appauthor=False) / "config.toml"
        self.user.parent.mkdir(parents=True)
        self._capsys = capsys

    def call(self, *options: str) -> str:
        assert main(["call", "tool.py", "ask", *options]) == 2
        return self._capsys.readouterr().err.removeprefix("anabranch: ").rstrip("\n")


@pytest.fixture
def configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Configured:
    below = tmp_path / "project" / "below"
    below.mkdir(parents=True)
    (below / "tool.py").write_text(TOOL)
    monkeypatch.chdir(below)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("ANABRANCH_MODEL", raising=False)
    return Configured(tmp_path / "project", capsys)


def missing(name: str) -> str:
    return f"Cannot read the model script {name}: No such file or directory. Check the path."


def test_a_flag_wins_over_the_environment_over_the_project_over_the_user(
    configured: Configured, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured.user.write_text('model = "script:shared"')
    assert configured.call() == missing("shared")
    configured.user.write_text('model = "script:shared"\n[call]\nmodel = "script:own"')
    assert configured.call() == missing("own")
    configured.project.write_text('[tool.anabranch]\nmodel = "script:project"')
    assert configured.call() == missing("project")
    configured.project.write_text('[tool.anabranch.call]\nmodel = "script:project-own"')
    assert configured.call() == missing("project-own")
    monkeypatch.setenv("ANABRANCH_MODEL", "script:environment")
    assert configured.call() == missing("environment")
    assert configured.call("--model", "script:flag") == missing("flag")


def test_tables_of_other_commands_are_ignored(configured: Configured) -> None:
    configured.project.write_text(
        '[tool.anabranch.serve]\nport = 1\n[tool.anabranch.call]\nmodel = "script:x"\n'
        '[tool.other]\nmodel = "script:y"\n'
    )
    assert configured.call() == missing("x")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("[call]\nmodle = 1", 'Unknown option: "[modle]" from ', id="unknown"),
        pytest.param('[call]\nera = "x"', 'Invalid value "x" for [era] from ', id="invalid"),
        pytest.param("[call", "cannot be read: Expected ']' at the end", id="no TOML"),
    ],
)  # fmt: skip
def test_a_fault_is_named_with_its_file(configured: Configured, text: str, problem: str) -> None:
    configured.user.write_text(text)
    complaint = configured.call()
    assert problem in complaint
    assert str(configured.user) in complaint


def test_without_a_file_nothing_is_configured(configured: Configured, capsys: Any) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().err == ""
    assert configured.call("--model", "script:flag") == missing("flag")

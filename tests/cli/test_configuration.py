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


MISSPELLED = [
    ('[tool.anabranch]\nmodle = "x"', "[tool.anabranch]", "modle", "option", "model"),
    ("[tool.anabranch]\nmax_toke = 1", "[tool.anabranch]", "max_toke", "option", "max-tokens"),
    ("[tool.anabranch.call]\nport = 1", "[tool.anabranch.call]", "port", "option", None),
    ("[tool.anabranch.cal]\nera = 'x'", "[tool.anabranch]", "cal", "command", "call"),
]


@pytest.mark.parametrize(("text", "table", "name", "kind", "near"), MISSPELLED)
def test_an_unknown_name_is_refused_with_the_nearest_name_and_the_file(
    configured: Configured, text: str, table: str, name: str, kind: str, near: str | None
) -> None:
    configured.project.write_text(text)
    fix = f"Did you mean {near}?" if near else "Remove it."
    place = f"{table} of {configured.project}"
    assert configured.call() == f"{place} has {name}, which is no {kind}. {fix}"


def test_options_of_a_group_of_commands_are_refused_with_the_table_of_one(
    configured: Configured, capsys: pytest.CaptureFixture[str]
) -> None:
    configured.project.write_text("[tool.anabranch.calls]\nlimit = 1")
    assert main(["calls", "list"]) == 2
    assert "Give it to one command, such as in [tool.anabranch.calls.list]." in (
        capsys.readouterr().err
    )


def test_options_of_other_commands_may_stand_in_the_table_for_all(configured: Configured) -> None:
    configured.project.write_text(
        "[tool.anabranch]\nmemory = true\ncalls = 'values'\nport = 1\nlimit = 2\nmodel = 'script:x'"
    )
    assert configured.call() == missing("x")


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("model = 3", "model in {} must be text, not 3."),
        ("model = ['a']", "model in {} must be text, not a list."),
        ("model.name = 'a'", "model in {} must be text, not a table."),
        ("era = 2026-07-28", "era in {} must be text, not 2026-07-28."),
        ("max-tokens = 'many'", 'max-tokens in {} must be a whole number, not "many".'),
        ("max_depth = true", "max_depth in {} must be a whole number, not true."),
        ("timeout = '1'", 'timeout in {} must be a number, not "1".'),
        ("verbose = 'yes'", 'verbose in {} must be true or false, not "yes".'),
        ("header = [1]", "header in {} must be a text or a list of texts, not a list."),
        ("port = 'http'", 'port in {} must be a whole number, not "http".'),
    ],
)
def test_a_value_of_a_wrong_kind_is_refused(configured: Configured, value: str, fault: str) -> None:
    configured.project.write_text(f"[tool.anabranch]\n{value}")
    assert configured.call() == fault.format(f"[tool.anabranch] of {configured.project}")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("[call]\nmodle = 1", "has modle, which is no option.", id="unknown"),
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


def test_a_command_runs_in_a_deleted_folder(
    configured: Configured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert main(["--version"]) == 0

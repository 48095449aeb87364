"""The command line where no server is needed."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.errors import typed_command
from tests.cli.running import Run

SERVED = str(Path(__file__).with_name("served.py"))


@pytest.fixture(autouse=True)
def own_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("ANABRANCH_KEYS", "k" * 32)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    sys.modules.pop("target", None)


def test_a_typed_command_line_is_known_to_its_command_alone(
    run: Run,
) -> None:
    run("list", SERVED)
    assert typed_command.get() == ""


@pytest.mark.parametrize("arguments", [["--help"], []])
def test_help_names_every_command(run: Run, arguments: list[str]) -> None:
    status, out, shown = run(*arguments)
    assert (status, shown) == (0, "")
    assert all(command in out for command in ("serve", "call", "check", "demo", "tree"))


def test_a_store_that_cannot_be_reached_is_reported_at_once(
    run: Run, served: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    status, out, shown = run("serve", str(served), "--store", f"sqlite:///{tmp_path}/file/calls.db")
    assert (status, out) == (1, "")
    assert "cannot be opened" in shown


def test_an_interrupt_ends_a_command_without_a_traceback(run: Run, tmp_path: Path) -> None:
    target = tmp_path / "target.py"
    target.write_text("raise KeyboardInterrupt")
    assert run("serve", str(target)) == (130, "", "anabranch: cancelled\n")

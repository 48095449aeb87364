"""The command line where no server is needed."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.cli import main
from anabranch.errors import typed_command

SERVED = str(Path(__file__).with_name("served.py"))


@pytest.fixture(autouse=True)
def own_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("ANABRANCH_KEYS", "k" * 32)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    sys.modules.pop("target", None)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(list(arguments))
    out, shown = capsys.readouterr()
    return status, out, shown


def test_a_typed_command_line_is_known_to_its_command_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run(capsys, "list", SERVED)
    assert typed_command.get() == ""


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, shown = run(capsys, "--version")
    assert (status, shown) == (0, "")
    assert out.strip()


@pytest.mark.parametrize("arguments", [["--help"], []])
def test_help_names_every_command(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    status, out, shown = run(capsys, *arguments)
    assert (status, shown) == (0, "")
    assert all(command in out for command in ("serve", "call", "check", "demo", "tree"))


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["dance"], "dance"),
        (["serve"], "serve needs a TARGET"),
        (["serve", "missing.py"], "There is no file missing.py"),
        (["serve", "missing.py", "--transport", "pigeon"], "pigeon"),
        (["serve", "missing.py", "--port", "many"], "many"),
        (["serve", "missing.py", "--max-tokens=-1"], "--max-tokens must be a number from 0 up"),
        (["serve", "missing.py", "--port", "70000"], "There is no port 70000. Choose one"),
        (["serve", "missing.py", "--model", "gpt"], "Unknown model 'gpt'"),
        (["serve", "missing.py", "--workers", "2"], "Over stdio there is one process."),
        (
            ["serve", "missing.py", "--heartbeat", "-1"],
            "--heartbeat is a number of seconds, or 0 for none, not -1.",
        ),
        (["serve", "missing.py", "--workers", "0"], "There cannot be 0 workers."),
        (
            ["serve", "missing.py", "--workers=2", "--transport=http", "--store=memory:"],
            "Workers cannot share memory.",
        ),
        (["serve", "missing.py", "--ttl", "0"], "No user can answer in 0 s."),
        (["serve", SERVED, "--store", "paper:///x"], "There is no store for 'paper' URLs"),
        (["call", "missing.py", "tool"], "There is no file missing.py"),
        (["check"], "TARGET"),
        (["check", "missing.py"], "There is no file missing.py"),
        (["check", "http://x/mcp"], "is a running server"),
        (["check", "missing.py", "tool", "--answers", "missing.json"], "Cannot read the answers"),
        (["demo", "--answers", "missing.json"], "Cannot read the answers"),
    ],
)
def test_wrong_usage_is_reported_in_one_line_with_status_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], problem: str
) -> None:
    status, out, shown = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert problem in shown
    assert shown.count("\n") == 1


def test_a_store_that_cannot_be_reached_is_reported_at_once(
    capsys: pytest.CaptureFixture[str], served: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    status, out, shown = run(
        capsys, "serve", str(served), "--store", f"sqlite:///{tmp_path}/file/calls.db"
    )
    assert (status, out) == (1, "")
    assert "cannot be opened" in shown


def test_an_interrupt_ends_a_command_without_a_traceback(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    target = tmp_path / "target.py"
    target.write_text("raise KeyboardInterrupt")
    assert run(capsys, "serve", str(target)) == (130, "", "anabranch: cancelled\n")

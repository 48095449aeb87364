"""``anabranch chat`` and ``anabranch web`` with running servers as targets."""

import sys

import pytest

from anabranch.cli import main
from tests.cli.test_chat import TARGET, Desk, desk
from tests.mcp.harness import ROOT

__all__ = ["desk"]

OTHER = f"command:{sys.executable} -m tests.agents.remote_server"


@pytest.fixture(autouse=True)
def found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands find the servers of these tests."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def test_a_chat_calls_the_tools_of_files_and_of_servers(desk: Desk) -> None:
    lines = '/paint colour="\x1b[31mred"\n/think about=nothing'
    done = desk.lead(TARGET, OTHER, "--thread", "t", *desk.model, lines=lines)
    assert done.returncode == 0
    painted, thought = done.stdout.splitlines()
    assert painted == "\N{REPLACEMENT CHARACTER}[31mred \N{REPLACEMENT CHARACTER}[0m"
    assert thought == "All right."
    assert "\x1b" not in done.stdout + done.stderr


def test_a_server_at_module_level_is_a_target_of_a_chat(desk: Desk) -> None:
    done = desk.lead("tests.agents.remote_server", "--thread", "t", lines="/paint colour=blue")
    assert (done.returncode, done.stdout.splitlines()[0][:4]) == (0, "blue")


@pytest.mark.parametrize("command", ["chat", "web"])
@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["http://127.0.0.1:1/mcp"], 1, "http://127.0.0.1:1/mcp cannot be used: "),
        (["command:no-such-command -x"], 1, "no-such-command cannot be used: No such file"),
        (["command:"], 2, "Write the command that starts the server after command:."),
        (["--header", "X: 1"], 2, "Give exactly one URL along with them."),
        (["http://127.0.0.1:1/mcp", "--header", "X"], 2, "'X' begins no header."),
    ],
    ids=["no server", "no command", "nothing", "no url", "no header"],
)
def test_a_server_that_cannot_be_used_is_reported_in_one_sentence(
    command: str, arguments: list[str], status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["--port", "0"] if command == "web" else ["--script=-"]
    assert main([command, *arguments, *more, "--store", "memory:"]) == status
    out, err = capsys.readouterr()
    assert out == ""
    [line] = err.splitlines()
    assert said in line

"""The real command, with its own server processes.

The commands of all tests start together: starting takes longer than everything else.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anabranch._terminal import STILL_RUNNING

ANABRANCH = [sys.executable, "-m", "anabranch"]
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "0"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Started:
    """A running command; ``done`` waits for its end."""

    def __init__(self, *arguments: str, **more: str) -> None:
        self.process = subprocess.Popen(
            [*ANABRANCH, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            env={**os.environ, **more},
        )

    def done(self) -> tuple[int, Any, str]:
        """Return the exit status, the result and the shown text; stdin is empty."""
        out, shown = self.process.communicate()
        return self.process.returncode, json.loads(out) if out else None, shown


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with models, answers and broken targets."""
    folder = tmp_path_factory.mktemp("processes")
    (folder / "model.json").write_text('[{"text": "deep"}]')
    (folder / "answers.json").write_text('[{"sample": "shallow"}]')
    (folder / "raising.py").write_text("1 / 0")
    (folder / "exiting.py").write_text("import os; os._exit(9)")
    return folder


@pytest.fixture(scope="module")
def commands(served: Path, folder: Path) -> Iterator[dict[str, Started]]:
    """Start the commands, and return them by the tests that use them."""
    target, model = str(served), f"script:{folder / 'model.json'}"
    answers = ["--answers", str(folder / "answers.json")]
    started = {
        "stdio": Started("call", target, "think", "about=x", *answers, ANABRANCH_MODEL=model),
        "serve": Started("serve", target, "--model", model, ANABRANCH_KEYS="k" * 32),
        "raising": Started("call", str(folder / "raising.py"), "tool"),
        "exiting": Started("call", str(folder / "exiting.py"), "tool"),
        "dying": Started("call", target, "die"),
        "demo": Started("demo", ANABRANCH_MODEL=""),
    }
    for era in ("modern", "handshake"):
        wait = ["call", target, "wait", f"notes={folder / era}", "--era", era]
        started[era] = Started(*wait)
    yield started
    for command in started.values():
        with command.process as process:  # closes its pipes, and waits
            process.kill()


def test_a_file_is_called_over_stdio_with_the_callers_model(commands: dict[str, Started]) -> None:
    """If the server used the model itself, it would not ask the client, whose file has another reply."""
    assert commands["stdio"].done() == (0, "shallow", "")


def test_a_server_with_its_own_model_does_not_ask_the_client(commands: dict[str, Started]) -> None:
    """An MCP client can start the server with the same command, over stdio."""
    call = {"name": "think", "arguments": {"about": "rivers"}, "_meta": META}
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    server = commands["serve"].process
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(json.dumps(request) + "\n")
    server.stdin.flush()
    response = json.loads(server.stdout.readline())
    server.communicate()  # closes stdin, which ends the server
    assert server.returncode == 0
    assert response["result"]["structuredContent"] == {"result": "deep"}


@pytest.mark.parametrize(
    ("target", "status", "reason"),
    [
        ("raising", 2, "cannot be served; the reason is above."),
        ("exiting", 1, "ended before it answered."),
    ],
)
def test_a_target_that_cannot_be_served_is_reported(
    commands: dict[str, Started], target: str, status: int, reason: str
) -> None:
    ended, value, shown = commands[target].done()
    assert (ended, value) == (status, None)
    assert shown.endswith(f"{reason}\n")
    assert "Traceback" not in shown


def test_a_server_that_dies_midway_is_reported(commands: dict[str, Started], served: Path) -> None:
    status, value, shown = commands["dying"].done()
    assert (status, value) == (1, None)
    assert shown == f"anabranch: The server of {served} ended the connection.\n"


@pytest.mark.parametrize("era", ["modern", "handshake"])
def test_ctrl_c_cancels_the_call_and_its_effects_are_undone(
    commands: dict[str, Started], folder: Path, era: str
) -> None:
    call = commands[era].process
    assert call.stderr is not None
    assert call.stderr.readline() == "[1/2] waiting\n"
    call.send_signal(signal.SIGINT)
    out, shown = call.communicate()
    shown = shown.replace(STILL_RUNNING, "")  # the shutdown can take longer than a second
    assert (call.returncode, out, shown) == (130, "", "anabranch: cancelled\n")
    assert (folder / era).read_text() == "done\nundone\n"


def test_the_demo_plays_itself_without_a_terminal(commands: dict[str, Started]) -> None:
    status, outcome, shown = commands["demo"].done()
    assert status == 0
    assert outcome["picked"] in outcome["message"]
    assert "a script gives the user's answers" in shown
    assert "round 2 ends with 1 question: pick_card/card.1 (the user)" in shown
    assert '> accept {"cardNumber": 3}' in shown
    assert "  at line" in shown
    assert ": answer = await ctx.elicit(choice, question)\n" in shown
    assert "In short: at each question the server discarded the function" in shown
    assert "Next:\n  anabranch demo --era handshake" in shown


@pytest.mark.usefixtures("cold")
@pytest.mark.parametrize(
    "arguments",
    [
        ["call", "TARGET", "greet", "who=Ann"],
        pytest.param(["list", "TARGET"], marks=pytest.mark.long),
        pytest.param(["check", "TARGET"], marks=pytest.mark.long),
        pytest.param(["demo"], marks=pytest.mark.long),
        pytest.param(["tree", "list", "--store", "URL"], marks=pytest.mark.long),
        pytest.param(["calls", "list", "--store", "URL"], marks=pytest.mark.long),
        pytest.param(["work", "list", "--store", "URL"], marks=pytest.mark.long),
        pytest.param(["memory", "list", "--store", "URL"], marks=pytest.mark.long),
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_command_does_its_work_in_a_new_interpreter(
    arguments: list[str], served: Path, tmp_path: Path
) -> None:
    """The other tests start their commands from a process that has imported everything."""
    places = {"TARGET": str(served), "URL": f"sqlite:///{tmp_path}/new.db"}
    status, _, shown = Started(*(places.get(each, each) for each in arguments)).done()
    assert (status, "Traceback" in shown) == (0, False)

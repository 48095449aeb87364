"""The real command, with server processes of its own."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from anabranch.cli import main

ANABRANCH = [sys.executable, "-m", "anabranch"]


def run(*arguments: str, stdin: str = "", **environment: str) -> tuple[int, Any, str]:
    done = subprocess.run(
        [*ANABRANCH, *arguments],
        check=False,
        input=stdin,
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, **environment},
    )
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


def call_here(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Call as a client in this process; the server has one of its own."""
    status = main(["call", *arguments])
    out, told = capsys.readouterr()
    return status, out, told


def test_a_file_is_called_over_stdio_with_the_callers_model(served: Path, tmp_path: Path) -> None:
    """A server that took the model for its own would not ask the client, whose file says more."""
    (tmp_path / "model.json").write_text('[{"text": "deep"}]')
    (tmp_path / "answers.json").write_text('[{"sample": "shallow"}]')
    options = ["--answers", str(tmp_path / "answers.json")]
    model = f"script:{tmp_path / 'model.json'}"
    done = run("call", str(served), "think", "about=rivers", *options, ANABRANCH_MODEL=model)
    assert done == (0, "shallow", "")


def test_a_server_with_a_model_of_its_own_asks_nobody(served: Path, tmp_path: Path) -> None:
    """And what an MCP client starts is told how: the same command over stdio."""
    (tmp_path / "model.json").write_text('[{"text": "deep"}]')
    wish = {"name": "think", "arguments": {"about": "rivers"}}
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "0"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {**wish, "_meta": meta}}
    with subprocess.Popen(
        [*ANABRANCH, "serve", str(served), "--model", f"script:{tmp_path / 'model.json'}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "ANABRANCH_KEYS": "k" * 32},
        text=True,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        response = json.loads(server.stdout.readline())
        server.stdin.close()  # a server that is left answers nothing more
        status = server.wait()
    assert status == 0
    assert response["result"]["structuredContent"] == {"result": "deep"}


@pytest.mark.parametrize(
    ("text", "status", "reason"),
    [
        ("1 / 0", 2, "cannot be served; the reason is above."),
        ("import os; os._exit(9)", 1, "ended before it answered."),
    ],
)
def test_a_target_that_cannot_be_served_is_told(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, status: int, reason: str
) -> None:
    target = tmp_path / "target.py"
    target.write_text(text)
    ended, out, told = call_here(capsys, str(target), "tool")
    assert (ended, out) == (status, "")
    assert told.endswith(f"{reason}\n")
    assert "Traceback" not in told


def test_a_server_that_dies_during_the_call_is_told(
    capsys: pytest.CaptureFixture[str], served: Path
) -> None:
    status, out, told = call_here(capsys, str(served), "die")
    assert (status, out) == (1, "")
    assert told == f"anabranch: The server of {served} ended the connection.\n"


@pytest.mark.parametrize("era", ["modern", "handshake"])
def test_ctrl_c_cancels_the_call_and_what_was_done_is_undone(
    served: Path, tmp_path: Path, era: str
) -> None:
    notes = tmp_path / "notes"
    command = ["call", str(served), "wait", f"notes={notes}", "--era", era]
    with subprocess.Popen(
        [*ANABRANCH, *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_interrupts,  # noqa: PLW1509 - nothing here has threads yet
    ) as call:
        assert call.stderr is not None
        assert call.stderr.readline() == "[1/2] waiting\n"
        call.send_signal(signal.SIGINT)
        out, told = call.communicate()
    assert (call.returncode, out, told) == (130, "", "anabranch: cancelled\n")
    assert notes.read_text() == "done\nundone\n"


def heed_interrupts() -> None:
    """A shell starts what runs in its background deaf to Ctrl-C, and the tests may be run there."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_the_demo_plays_itself_without_a_terminal() -> None:
    status, outcome, told = run("demo", ANABRANCH_MODEL="")
    assert status == 0
    assert outcome["picked"] in outcome["message"]
    assert "the person's answers are scripted" in told
    assert "round 2 ends with 1 question: pick_card/card.1 (the person)" in told
    assert '> accept {"cardNumber": 3}' in told

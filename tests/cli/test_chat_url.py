"""``anabranch chat --url``: the terminal as a client of a real ``anabranch web``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from anabranch.cli import main
from tests.cli.terminals import PROMPT, terminal
from tests.patience import PATIENCE

TARGET = str(Path(__file__).with_name("chatted.py"))
REPLIES = [
    {"when": "book", "tool_calls": [{"name": "book", "arguments": {"place": "Ulm"}}]},
    {"when": "hang", "text": "I wait.", "tool_calls": [{"name": "hang"}]},
    {"when": "list", "text": "Two:\n\n- **one**\n- two"},
    {"text": "All right.", "repeat": True},
]
TOKEN = "sixteen-characters-and-more"


@contextmanager
def web(folder: Path, *options: str) -> Generator[str]:
    """Run ``anabranch web`` in a process of its own; yield the address that a browser needs once."""
    (folder / "model.json").write_text(json.dumps(REPLIES))
    command = [sys.executable, "-m", "anabranch", "web", TARGET, "--port", "0", *options]
    models = ["--model", f"script:{folder / 'model.json'}", "--store", "memory:"]
    with subprocess.Popen([*command, *models], stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        line = server.stderr.readline()
        assert line.startswith("The chat is at "), line + server.stderr.read()
        try:
            address = line.removeprefix("The chat is at ").strip()
            yield f"{address}?token={TOKEN}" if TOKEN in options else address
        finally:
            server.send_signal(signal.SIGINT)
            _, shown = server.communicate(timeout=PATIENCE)
    assert TOKEN not in line + shown


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("ANABRANCH_MODEL", raising=False)
    return {"XDG_DATA_HOME": str(tmp_path)}


def test_a_chat_with_a_server_is_led_by_keyboard(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    """Questions are forms; Ctrl-C stops the turn at the server; what is open is asked again."""
    with web(tmp_path, "--token", TOKEN) as url:
        with terminal(
            *("chat", "--url", url, "--thread", "t"), whole=True, environment=environment
        ) as person:
            person.wait_for(PROMPT)
            person.type("book it\r")
            person.wait_for("→ book")
            person.wait_for("Book Ulm?")
            person.wait_for("(y/N)")
            person.type("y\r")
            person.wait_for("← book: Ulm: accept")
            person.wait_for("All right.")
            person.wait_for(PROMPT)
            person.type("hang on\r")
            person.wait_for("I wait.")
            person.wait_for("[hang] waiting")
            person.wait_for("running hang")
            person.type("\x03")
            person.wait_for("Stopped by you. What was received is stored.")
            person.wait_for(PROMPT)
            person.type("hello\r")
            person.wait_for("All right.")
            person.wait_for(PROMPT)
            person.type("list them\r")
            person.wait_for("• one")
            person.wait_for(PROMPT)
            person.type("/boo\t")
            person.wait_for("/book")
            person.type(" pl\t")
            person.wait_for("place=")
            person.type("Ulm\r")
            person.wait_for("(y/N)")
            person.type("n\r")
            person.wait_for("← book")
            person.wait_for(PROMPT)
            person.type("/quit\r")
            person.wait_for("To go on: anabranch chat --url http://127.0.0.1:")
            person.wait_for("--thread t")
            assert TOKEN not in person.shown
        with terminal(
            *("chat", "--url", url, "--thread", "t"),
            whole=True,
            status=130,
            environment=environment,
        ) as person:
            person.wait_for(PROMPT)
            person.type("\x03")


def test_an_open_question_is_asked_when_the_chat_begins(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    """The terminal is closed while the question is open, and another one is opened."""
    with web(tmp_path) as url:
        options = ["chat", "--url", url, "--thread", "t"]
        with terminal(*options, whole=True, status=-9, environment=environment) as person:
            person.wait_for(PROMPT)
            person.type("book it\r")
            person.wait_for("(y/N)")
            os.kill(person.process.pid, signal.SIGKILL)
        with terminal(*options, whole=True, environment=environment) as person:
            person.wait_for("Book Ulm?")
            person.wait_for("(y/N)")
            person.type("y\r")
            person.wait_for("← book: Ulm: accept")
            person.wait_for("All right.")
            person.wait_for(PROMPT)
            person.type("\rhello\r")
            person.wait_for("All right.")
            person.wait_for(PROMPT)
            person.type("\x04")
            assert "blank" not in person.shown


def test_a_chat_with_a_server_is_led_by_a_script(
    tmp_path: Path, environment: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "lines.txt"
    script.write_text("book it\n/answer ok=true\n/book place=Graz\n/answer decline\nhello\n/quit\n")
    with web(tmp_path, "--token", TOKEN) as url:
        server = url.partition("?")[0]
        assert main(["chat", "--url", server, "--token", TOKEN, "--script", str(script)]) == 0
        out, shown = capsys.readouterr()
        assert out == "All right.\nGraz: decline\nAll right.\n"
        assert "? Book Ulm?" in shown
        assert "[book]" not in shown
        assert TOKEN not in shown
        assert main(["chat", "--url", server, "--script", str(script)]) == 1
        assert "Give the server's token" in capsys.readouterr().err
    assert main(["chat", "--url", server, "--script", str(script)]) == 1
    assert "Cannot reach" in capsys.readouterr().err


def test_a_message_is_left_at_the_server_which_goes_on_by_itself(
    tmp_path: Path, environment: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Who looks again follows the turn, or is asked what it waits for: both come to the question."""
    script = tmp_path / "answer.txt"
    script.write_text("/answer ok=true\n")
    with web(tmp_path, "--token", TOKEN) as url:
        server = url.partition("?")[0]
        leave = ["chat", "--url", url, "--thread", "t", "--detach", "-p"]
        assert main([*leave, "book it"]) == 0
        left = json.loads(capsys.readouterr().out)
        again = f"anabranch chat --url {server} --thread t"
        assert left.pop("run").startswith("run_")
        assert left == {"thread": "t", "page": f"{server}?thread=t", "command": again}
        assert main(["chat", "--url", url, "--thread", "t", "--script", str(script)]) == 0
        out, shown = capsys.readouterr()
        assert ("? Book Ulm?" in shown, out) == (True, "All right.\n")
        script.write_text("/quit\n")
        assert main(["chat", "--url", url, "--thread", "t", "--script", str(script)]) == 0
        assert capsys.readouterr().out == "All right.\n"  # which it ends with
        with terminal(*leave, "hello", whole=True, environment=environment) as person:
            person.wait_for(f"{server}?thread=t")
            person.wait_for("To look again: anabranch chat --url")
    assert main([*leave, "book it"]) == 1
    assert "Cannot reach" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--url", "http://127.0.0.1:1", TARGET], "A target is up to the server"),
        (["--url", "http://127.0.0.1:1", "--store", "memory:"], "--store"),
        (["--url", "http://127.0.0.1:1", "--thread", "last"], "the thread's id"),
        (["--url", "nowhere"], "no address of a chat"),
        (["--token", TOKEN], "--url"),
        (["--detach", "-p", "hello"], "give --url ADDRESS"),
        (["--detach", "--url", "http://127.0.0.1:1"], "and -p TEXT"),
        (["--url", "http://127.0.0.1:1", "-p", "hello"], "needs --detach"),
        (["--json"], "what --detach prints"),
        (["--url", "nowhere", "--detach", "-p", "hello"], "no address of a chat"),
    ],
    ids=[
        *("target", "store", "last", "address", "token"),
        *("detached-alone", "detached-unsaid", "prompt", "json", "detached-address"),
    ],
)
def test_what_belongs_to_the_server_is_wrong_usage(
    arguments: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["chat", *arguments]) == 2
    assert why in capsys.readouterr().err

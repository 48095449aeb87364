"""``anabranch chat`` and ``anabranch web`` with running servers as targets."""

import json
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from anabranch.cli import main
from tests.chat.web import events_in, message, resume
from tests.cli.chats import TARGET, Desk
from tests.cli.stopping import ANABRANCH, started, url_of
from tests.mcp.harness import ROOT
from tests.patience import PATIENCE

OTHER = f"command:{sys.executable} -m tests.agents.remote_server"


@pytest.fixture(autouse=True)
def found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make commands find the servers of these tests."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def test_a_chat_calls_the_tools_of_files_and_of_servers(desk: Desk) -> None:
    lines = '/paint colour="\x1b[31mred"\n/think about=nothing'
    done = desk.lead(TARGET, OTHER, "--thread", "t", *desk.model, lines=lines)
    assert done.returncode == 0
    painted, thought = done.stdout.splitlines()
    assert painted == "\N{REPLACEMENT CHARACTER}[31mred \N{REPLACEMENT CHARACTER}[0m"
    assert thought == "All right."
    assert "\x1b" not in done.stdout + done.stderr


def test_a_server_that_a_command_starts_has_the_variables_that_are_named(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", "secret")
    monkeypatch.setenv("MAPS_KEY", "k")
    named = ("--env", "MAPS_KEY", "--env", "MAPS_URL=http://maps/?a=b")
    done = desk.lead(OTHER, *named, "--thread", "t", lines="/variables")
    found = json.loads(done.stdout.partition("\n\n")[0].replace("\n", ""))
    assert (found["MAPS_KEY"], found["MAPS_URL"]) == ("k", "http://maps/?a=b")
    assert "secret" not in done.stdout


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
        (["--env", "HOME"], 2, "Give at least one server as command:…"),
        (["http://127.0.0.1:1/mcp", "--env", "HOME"], 2, "Give at least one server as command:…"),
        (
            ["command:x", "--env", "NO_SUCH_NAME"],
            2,
            "The variable NO_SUCH_NAME of --env is not set.",
        ),
        (
            ["command:x", "--env", "=secret"],
            2,
            "--env takes the name of a variable, or NAME=value.",
        ),
        (["http://127.0.0.1:1/mcp", "--header", "X"], 2, "'X' is not a header."),
    ],
    ids=[
        "no server",
        "no command",
        "nothing",
        "no url",
        "no header",
        *("no command for it", "a url", "not set", "no name"),
    ],
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


BOOK = """
from pydantic import BaseModel
from anabranch import Accepted, BranchContext, tool

class Seats(BaseModel):
    n: int

def note(what: str) -> str:
    with open("effects", "a") as file:
        file.write(what)
    return what

@tool
async def book(ctx: BranchContext) -> str:
    await ctx.step(note, "before ")
    answer = await ctx.elicit(Seats, "How many?")
    await ctx.step(note, "after ")
    return f"{answer.content.n} seats" if isinstance(answer, Accepted) else answer.action
"""
SERVE = f"command:{sys.executable} -m anabranch serve book.py --transport stdio"


@contextmanager
def web(folder: Path, *options: str) -> Generator[httpx2.Client]:
    """Yield ``anabranch web`` with a server as its target, killed at the end, as by a crash."""
    command = (*ANABRANCH, "web", SERVE, "--port", "0", "--store", "sqlite:///chat.db")
    with started(*command, *options, folder=folder) as server:
        address = url_of(server).removesuffix("/mcp")
        with httpx2.Client(base_url=address, timeout=PATIENCE) as client:
            yield client


def test_a_chat_that_is_killed_at_a_servers_question_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "book.py").write_text(BOOK)
    with web(tmp_path) as client:
        client.post("/agui", json=message("/book"))
        before: list[dict[str, Any]] = client.get("/threads/t1/pending").json()
    with web(tmp_path) as client:
        [question] = client.get("/threads/t1/pending").json()
        assert [question] == before
        answer = {"interruptId": question["interrupt_id"], "status": "resolved"}
        events = events_in(client.post("/agui", json=resume({**answer, "payload": {"n": 2}})).text)
    assert "2 seats" in str(events)
    assert (tmp_path / "effects").read_text() == "before after "


HANG = """
import asyncio
from anabranch import BranchContext, tool

@tool
async def book(ctx: BranchContext) -> str:
    await asyncio.Event().wait()
    return ""
"""


def test_a_server_that_never_returns_is_given_up_after_the_timeout_of_web(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "book.py").write_text(HANG)
    with web(tmp_path, "--timeout", "0.2") as client:
        events = events_in(client.post("/agui", json=message("/book")).text)
    assert "'book' has not ended within 0.2 s, and was cancelled." in str(events)


def test_web_limits_the_tokens_of_a_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "book.py").write_text(HANG)
    (tmp_path / "model.json").write_text('[{"text": "never said"}]')
    with web(tmp_path, "--max-tokens", "5", "--model", "script:model.json") as client:
        events = events_in(client.post("/agui", json=message("Say it, at length")).text)
    assert "of 5 tokens" in str(events)
    assert "never said" not in str(events)

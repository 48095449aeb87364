"""FastMCP servers, and commands that start a server, as TARGETs of every command."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from tests.cli.running import Run
from tests.patience import PATIENCE

pytestmark = pytest.mark.usefixtures("own_modules")


FASTMCP = """
from fastmcp import Context, FastMCP
from pydantic import BaseModel

class Ok(BaseModel):
    ok: bool

server = FastMCP("theirs")

@server.tool
def add(a: int, b: int = 1) -> int:
    "Add."
    return a + b

@server.tool
async def sure(ctx: Context) -> str:
    "Ask."
    return (await ctx.elicit("Sure?", Ok)).action
"""
OURS = """
from anabranch import BranchContext, tool

@tool
async def ask(ctx: BranchContext) -> str:
    "Ask the user."
    return (await ctx.elicit(Ok, "Ours?", key="ok")).action
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    file = tmp_path / "tools.py"
    file.write_text(FASTMCP)
    return str(file)


@pytest.fixture
def both(tmp_path: Path) -> str:
    file = tmp_path / "tools.py"
    file.write_text(FASTMCP + OURS)
    return str(file)


@contextmanager
def served(target: str, *options: str) -> Generator[tuple[str, list[str]]]:
    """Serve over HTTP by the real command; yield the URL, and the lines printed before it."""
    command = [sys.executable, "-m", "anabranch", "serve", target, "--transport=http", "--port=0"]
    environment = {**os.environ, "ANABRANCH_KEYS": "k" * 32}
    with subprocess.Popen(
        [*command, *options], stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stderr is not None
        before: list[str] = []
        try:
            for line in process.stderr:
                if found := re.search(r"Serving .* at (http://\S+)", line):
                    yield found[1], before
                    break
                before.append(line.rstrip())
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(PATIENCE)


def test_tools_of_a_fastmcp_server_are_listed_and_called(run: Run, file: str) -> None:
    status, out, _ = run("list", file)
    assert (status, [each["name"] for each in json.loads(out)]) == (0, ["add", "sure"])
    status, out, _ = run("inspect", file, "add")
    assert (status, json.loads(out)["parameters"]["required"]) == (0, ["a"])
    assert run("call", file, "add", "a=2")[:2] == (0, "3\n")


def test_a_fastmcp_server_asks_in_the_handshake_era_only(
    run: Run, file: str, tmp_path: Path
) -> None:
    answers = tmp_path / "answers.json"
    answers.write_text('[{"accept": {"ok": true}}]')
    asking = ("call", file, "sure", "--answers", str(answers))
    assert run(*asking, "--era", "handshake")[:2] == (0, '"accept"\n')
    status, _, shown = run(*asking, "--era", "modern")
    assert status == 1
    assert "is unavailable on 2026-07-28 connections. Its library" in shown
    assert "--era handshake" in shown
    assert "ANABRANCH_KEYS has no effect" not in shown, "no one has set them"
    status, _, shown = run(*asking, "--era", "saga")
    assert (status, "This server offers no sagas. Leave out --era saga." in shown) == (2, True)


def test_our_tools_are_added_to_a_fastmcp_server(run: Run, both: str, tmp_path: Path) -> None:
    answers = tmp_path / "answers.json"
    answers.write_text('[{"key": "ok", "accept": {"ok": true}}]')
    for era in ("modern", "handshake", "saga"):
        done = run("call", both, "ask", "--era", era, "--answers", str(answers))
        assert done[:2] == (0, '"accept"\n')
    assert run("call", both, "add", "a=2")[:2] == (0, "3\n")


def test_a_fastmcp_server_over_http_requires_the_token(run: Run, file: str) -> None:
    with served(file, "--token", "t" * 16, "--max-tokens", "5") as (url, before):
        assert any(
            "FastMCP runs the tools of a FastMCP server: --store, --model" in e for e in before
        )
        assert run("call", url, "add", "a=2", "--auth", "t" * 16)[:2] == (0, "3\n")
        assert httpx2.post(url, timeout=PATIENCE, json={}).status_code == 401
        headers = {"Authorization": f"Bearer {'t' * 16}"}
        elsewhere = httpx2.post(
            url, timeout=PATIENCE, json={}, headers={**headers, "Host": "evil.example"}
        )
        assert (elsewhere.status_code, "--allowed-host" in elsewhere.text) == (421, True)
        page = httpx2.post(
            url, timeout=PATIENCE, json={}, headers={**headers, "Origin": "https://evil.example"}
        )
        assert (page.status_code, "--allowed-origin" in page.text) == (403, True)


def test_two_servers_are_not_merged(run: Run, file: str, tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    other.write_text("from mcp.server.mcpserver import MCPServer\nserver = MCPServer('x')\n")
    status, _, shown = run("serve", file, str(other))
    assert status == 2
    assert "A FastMCP server cannot be merged with another server: serve them one by one" in shown


def test_a_tool_that_is_never_replayed_is_not_checked(run: Run, file: str) -> None:
    status, _, shown = run("check", file)
    assert status == 2
    assert "functions of the SDK and of FastMCP are never replayed" in shown


def test_a_chat_calls_the_tools_of_a_fastmcp_server(run: Run, file: str, tmp_path: Path) -> None:
    script = tmp_path / "lines.txt"
    script.write_text("/add a=4\n")
    done = run("chat", file, "--store", "memory:", "--script", str(script))
    assert (done[0], done[1].splitlines()[0]) == (0, "5")


def test_a_command_that_starts_a_server_is_a_target(run: Run, file: str) -> None:
    command = f"command:{sys.executable} -m anabranch serve {file}"
    assert run("call", command, "add", "a=2")[:2] == (0, "3\n")
    status, out, _ = run("list", command)
    assert (status, [each["name"] for each in json.loads(out)]) == (0, ["add", "sure"])


def test_variables_are_for_a_command_that_starts_a_server(
    run: Run, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", "secret")
    command = f"command:{sys.executable} -m tests.agents.remote_server"
    status, out, _ = run("call", command, "variables", "--env", "MAPS_KEY=k")
    assert (status, json.loads(out).get("MAPS_KEY"), "secret" in out) == (0, "k", False)
    for words in (["list", command], ["inspect", command], ["call", command, "process"]):
        assert run(*words, "--env", "MAPS_KEY=k")[0] == 0
    for words in (["list", file], ["inspect", file], ["call", file, "add"]):
        status, out, problem = run(*words, "--env", "MAPS_KEY=k")
        assert (status, out) == (2, "")
        assert "--env is for a server that a command starts" in problem


@pytest.mark.parametrize(
    ("arguments", "status", "problem"),
    [
        pytest.param(["call", "command:", "t"], 2, "Write the command that starts", id="empty"),
        pytest.param(["call", "command:'x", "t"], 2, "cannot be read as a command", id="quote"),
        pytest.param(["call", "command:no-such-x", "t"], 1, "Cannot reach command:no", id="none"),
        pytest.param(
            ["call", "command:x", "t", "--timeout", "1"], 2, "sets its limits itself", id="limits"
        ),
        pytest.param(["list", "command:x", "--token", "t" * 16], 2, "at a URL", id="token"),
        pytest.param(["serve", "command:x"], 2, "is already a server", id="serve"),
        pytest.param(["check", "command:x"], 2, "is a running server", id="check"),
    ],
)
def test_a_command_that_cannot_be_used_is_reported(
    run: Run, arguments: list[str], status: int, problem: str
) -> None:
    done = run(*arguments)
    assert done[0] == status
    assert problem in done[2]

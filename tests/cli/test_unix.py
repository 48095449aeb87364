"""Conventions of the shell that commands follow: pipes, statuses, versions, logs, a clean stdout."""

import os
import subprocess
from pathlib import Path

import httpx2
import pytest

from anabranch.cli._output import WARNING
from anabranch.errors import typed_command
from tests.cli.running import Run
from tests.cli.stopping import ANABRANCH, SERVE, started, url_of
from tests.patience import PATIENCE

pytestmark = pytest.mark.usefixtures("own_modules")


PRINTING = """
import os
from anabranch import BranchContext, tool

print("loaded")

@tool
async def loud(ctx: BranchContext) -> str:
    "Print."
    print("one")
    print('{"jsonrpc": "2.0", "id": 1, "result": {}}')
    return "done"
"""
WRONG = """
from anabranch import tool


def helper(x):
    return x


@tool
def not_async(ctx) -> str:
    "Not async."
    return ""
"""


@pytest.fixture
def loud(tmp_path: Path) -> str:
    file = tmp_path / "tools.py"
    file.write_text(PRINTING)
    return str(file)


def test_the_output_of_a_server_over_stdio_is_on_stderr_after_one_warning(loud: str) -> None:
    done = subprocess.run(
        [*ANABRANCH, "call", loud, "loud"], check=True, capture_output=True, text=True
    )
    assert done.stdout == '"done"\n'
    assert done.stderr.splitlines() == [
        "loaded",
        WARNING.rstrip(),
        "one",
        '{"jsonrpc": "2.0", "id": 1, "result": {}}',
    ]


def test_a_closed_pipe_ends_the_command_quietly(loud: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*ANABRANCH, "list", loud], check=False, stdout=writing, stderr=subprocess.PIPE, text=True
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "loaded\n")


@pytest.mark.parametrize(
    "command",
    [
        ["check"],
        ["call"],
        ["serve"],
        ["web"],
        ["worker"],
        ["tree"],
        ["tree", "list"],
        ["calls", "show"],
        ["memory", "list"],
    ],
    ids=" ".join,
)
def test_every_command_says_its_version(run: Run, command: list[str]) -> None:
    version = run("--version")
    assert (version.status, run(*command, "--version")) == (0, version)


def test_requests_over_http_are_logged_on_request(loud: str) -> None:
    with started(*SERVE, loud, "--access-log") as server:
        httpx2.get(url_of(server), timeout=PATIENCE)
        assert server.stderr is not None
        logged = next(line for line in server.stderr if "uvicorn.access" in line)
    assert '"GET /mcp HTTP/1.1"' in logged


def test_an_error_of_a_decorator_points_at_the_authors_line(tmp_path: Path, run: Run) -> None:
    file = tmp_path / "tools.py"
    file.write_text(WRONG)
    assert f"(line 9 of {file})" in run.refusal("list", str(file))


def test_a_typed_command_line_is_known_to_its_command_alone(run: Run, served: Path) -> None:
    run("list", str(served))
    assert typed_command.get() == ""


@pytest.mark.parametrize("arguments", [["--help"], []])
def test_help_names_every_command(run: Run, arguments: list[str]) -> None:
    status, out, shown = run(*arguments)
    assert (status, shown) == (0, "")
    assert all(command in out for command in ("serve", "call", "check", "demo", "tree"))


def test_an_unreachable_store_is_reported(run: Run, served: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    status, out, shown = run("serve", str(served), "--store", f"sqlite:///{tmp_path}/file/calls.db")
    assert (status, out) == (1, "")
    assert "cannot be opened" in shown


def test_an_interrupt_ends_a_command_without_a_traceback(run: Run, tmp_path: Path) -> None:
    target = tmp_path / "target.py"
    target.write_text("raise KeyboardInterrupt")
    assert run("serve", str(target)) == (130, "", "anabranch: cancelled\n")

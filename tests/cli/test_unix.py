"""What a shell expects of a command: pipes, statuses, versions, logs, a clean stdout."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from anabranch.cli import main
from anabranch.cli._output import WARNING
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


def anabranch(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "anabranch", *arguments]


def test_the_output_of_a_server_over_stdio_is_on_stderr_after_one_warning(loud: str) -> None:
    done = subprocess.run(
        anabranch("call", loud, "loud"), check=True, capture_output=True, text=True
    )
    assert done.stdout == '"done"\n'
    assert done.stderr.splitlines() == [
        "loaded",
        WARNING.rstrip(),
        "one",
        '{"jsonrpc": "2.0", "id": 1, "result": {}}',
    ]


def test_a_reader_that_has_had_enough_ends_the_command_quietly(loud: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        anabranch("list", loud), check=False, stdout=writing, stderr=subprocess.PIPE, text=True
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
def test_every_command_says_its_version(
    capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    assert main(["--version"]) == 0
    version = capsys.readouterr().out
    assert main([*command, "--version"]) == 0
    assert capsys.readouterr().out == version


def test_requests_over_http_are_logged_on_request(loud: str) -> None:
    command = anabranch("serve", loud, "--transport=http", "--port=0", "--access-log")
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        url = next(line for line in lines if " at http" in line).rpartition(" at ")[2].strip()
        httpx2.get(url, timeout=PATIENCE)
        assert '"GET /mcp HTTP/1.1"' in next(line for line in lines if "uvicorn.access" in line)
        process.terminate()
        process.wait(PATIENCE)


def test_an_error_of_a_decorator_points_at_the_authors_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tools.py"
    file.write_text(WRONG)
    assert main(["list", str(file)]) == 2
    assert f"(line 9 of {file})" in capsys.readouterr().err

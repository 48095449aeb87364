"""``serve --transport http`` reports that it serves once it does, and otherwise the reason."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.running import Run

FAILING = """\
from contextlib import asynccontextmanager
from mcp.server.mcpserver import MCPServer
@asynccontextmanager
async def lifespan(_):
    raise RuntimeError("no database")
    yield
server = MCPServer("failing", lifespan=lifespan)
"""


def test_a_server_whose_lifespan_fails_does_not_say_that_it_serves(tmp_path: Path) -> None:
    target = tmp_path / "failing.py"
    target.write_text(FAILING)
    command = [sys.executable, "-m", "anabranch", "serve", str(target), "--transport", "http"]
    done = subprocess.run([*command, "--port", "0"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "RuntimeError: no database" in done.stderr
    assert "Serving" not in done.stderr
    assert done.stderr.endswith("anabranch: The server could not start; the reason is above.\n")


@pytest.mark.parametrize("host", ["nowhere.invalid", "192.0.2.1", "a..b", "x" * 70])
def test_a_host_that_is_not_this_machine_is_wrong_usage(run: Run, served: Path, host: str) -> None:
    command = ["serve", str(served), "--transport", "http", "--allowed-host", "x", "--port", "0"]
    shown = run.refusal(*command, "--host", host)
    assert f"Cannot listen on {host}:0: " in shown
    assert shown.endswith("Give --host an address of this machine.\n")


def test_a_port_that_is_taken_is_one_sentence(run: Run, served: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        status, _, err = run("serve", str(served), "--transport", "http", "--port", port)
    said = f"anabranch: Cannot listen on 127.0.0.1:{port}: Address already in use."
    assert (status, err) == (1, f"{said} Choose another --port.\n")

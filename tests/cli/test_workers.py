"""Several server processes behind one port. Each test waits for a report of the command.

The servers of all tests start together: starting takes longer than everything else.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn

from anabranch.cli import _calling
from anabranch.cli._endpoint import listen
from anabranch.cli._http_server import Bounds, configure
from tests.cli.running import Run
from tests.patience import PATIENCE

FAILING_WORKER = """\
import multiprocessing
from anabranch import tool
if multiprocessing.current_process().name != 'MainProcess': raise RuntimeError('taken')
@tool
async def one(ctx) -> int:
    'One.'
    return 1
"""


@pytest.fixture(scope="module")
def servers(
    served: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, "subprocess.Popen[str]"]]:
    """Start one server with a store, one without, and one whose workers fail."""
    folder = tmp_path_factory.mktemp("workers")
    failing = folder / "once.py"
    failing.write_text(FAILING_WORKER)
    started = {
        "stored": _start(served, "--store", f"sqlite:///{folder}/calls.db"),
        "plain": _start(served),
        "failing": _start(failing),
    }
    yield started
    for server in started.values():
        with server:  # closes its stderr, and waits
            server.kill()


def _start(target: Path, *options: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "anabranch", "serve", str(target), "--transport", "http"]
    return subprocess.Popen(
        [*command, "--port", "0", "--workers", "2", *options],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "ANABRANCH_KEYS": "k" * 32},
    )


def line(server: "subprocess.Popen[str]") -> str:
    assert server.stderr is not None
    return server.stderr.readline()


def url_of(shown: str) -> str:
    assert shown.startswith("Serving greet, count,")
    return shown.rpartition(" at ")[2].strip()


def answers(folder: Path) -> str:
    file = folder / "answers.json"
    file.write_text('[{"accept": {"ok": true}}, {"accept": {"ok": true}}]')
    return str(file)


def test_a_worker_that_dies_is_replaced_and_all_end_at_sigterm(
    run: Run,
    servers: "dict[str, subprocess.Popen[str]]",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = servers["stored"]
    url = url_of(line(server))
    monkeypatch.setattr(_calling, "PAUSES", (0.5,))
    status, _, shown = run("call", url, "die", "--era", "modern")
    assert status == 1, shown
    assert server.stderr is not None
    assert any("died" in each for each in server.stderr)
    given = ["times=2", "--answers", answers(tmp_path)]
    done = run("call", url, "confirm", *given, "--era", "modern")[:2]
    assert done == (0, '[\n  "accept",\n  "accept"\n]\n')
    server.send_signal(signal.SIGTERM)
    assert server.wait() == 0
    assert "Stopping parent process" in server.stderr.read()  # the end: no process can still write


def test_workers_serve_handshake_clients_without_questions_and_end_with_their_parent(
    run: Run, servers: "dict[str, subprocess.Popen[str]]"
) -> None:
    server = servers["plain"]
    url = url_of(line(server))
    for _ in range(3):  # any worker may accept the connection
        done = run("call", url, "count", 'words=["a", "b"]', "--era", "handshake")
        assert done == (0, "2\n", "")
    status, _, shown = run("call", url, "confirm", "--era", "handshake")
    assert status == 1
    assert "this connection cannot carry questions to the client" in shown
    server.kill()
    assert server.stderr is not None
    server.stderr.read()  # closed when the last process has ended


def test_workers_that_cannot_start_end_the_command(
    servers: "dict[str, subprocess.Popen[str]]",
) -> None:
    server = servers["failing"]
    _, shown = server.communicate()
    assert server.returncode == 1
    assert "once.py cannot be loaded: RuntimeError: taken (line 3 of" in shown
    assert shown.endswith("anabranch: A worker could not start; the reason is above.\n")


async def test_replies_do_not_wait_for_the_acknowledgement_of_the_one_before() -> None:
    """Nagle's algorithm is off on every connection; otherwise each reply is 40 ms late."""
    off: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def accepted(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection: socket.socket = writer.get_extra_info("socket")
        off.set_result(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    with listen("127.0.0.1", 0) as listener:
        async with await asyncio.start_server(accepted, sock=listener):
            _, writer = await asyncio.open_connection(*listener.getsockname())
            assert await asyncio.wait_for(off, PATIENCE)
            writer.close()
            await writer.wait_closed()


def test_a_worker_may_import_its_tools_for_longer_than_uvicorn_allows_by_default() -> None:
    default = uvicorn.Config("app").timeout_worker_healthcheck
    assert configure(None, Bounds(1), 2).timeout_worker_healthcheck >= 4 * default

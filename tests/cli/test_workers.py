"""Several server processes behind one port. Each test waits for what the command tells."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from anabranch.cli import main
from anabranch.cli._processes import listen

ENVIRONMENT = {**os.environ, "ANABRANCH_KEYS": "k" * 32}


@contextmanager
def serving(target: Path, *options: str) -> Generator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "anabranch", "serve", str(target), "--transport", "http"]
    with subprocess.Popen(
        [*command, "--port", "0", "--workers", "2", *options],
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    ) as server:
        try:
            yield server
        finally:
            server.kill()


def line(server: subprocess.Popen[str]) -> str:
    assert server.stderr is not None
    return server.stderr.readline()


def url_of(told: str) -> str:
    assert told.startswith("Serving greet, count,")
    return told.rpartition(" at ")[2].strip()


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(["call", *arguments])
    out, told = capsys.readouterr()
    return status, out, told


def answers(folder: Path) -> str:
    file = folder / "answers.json"
    file.write_text('[{"accept": {"ok": true}}, {"accept": {"ok": true}}]')
    return str(file)


def test_a_worker_that_dies_is_replaced_and_all_end_together(
    capsys: pytest.CaptureFixture[str], served: Path, tmp_path: Path
) -> None:
    with serving(served, "--store", f"sqlite:///{tmp_path}/calls.db") as server:
        url = url_of(line(server))
        status, _, told = call(capsys, url, "die", "--era", "modern")
        assert status == 1, told
        assert "has died (7); replaced" in line(server)
        given = ["times=2", "--answers", answers(tmp_path)]
        done = call(capsys, url, "confirm", *given, "--era", "modern")[:2]
        assert done == (0, '[\n  "accept",\n  "accept"\n]\n')
        server.send_signal(signal.SIGTERM)
        assert server.wait() == 0
        assert line(server) == ""  # the end: no process is left that could write


def test_workers_serve_handshake_clients_without_questions_and_end_with_their_parent(
    capsys: pytest.CaptureFixture[str], served: Path
) -> None:
    with serving(served) as server:
        url = url_of(line(server))
        for _ in range(3):  # whichever worker gets it
            done = call(capsys, url, "count", 'words=["a", "b"]', "--era", "handshake")
            assert done == (0, "2\n", "")
        status, _, told = call(capsys, url, "confirm", "--era", "handshake")
        assert status == 1
        assert "this connection cannot carry them to the client" in told
        server.kill()
        assert line(server) == ""  # it comes to an end when the last process has ended


def test_workers_that_cannot_start_end_it_all(tmp_path: Path) -> None:
    target = tmp_path / "once.py"
    target.write_text(
        "import multiprocessing\n"
        "from anabranch import tool\n"
        "if multiprocessing.parent_process(): raise RuntimeError('taken')\n"
        "@tool\n"
        "async def one(ctx) -> int:\n"
        "    'One.'\n"
        "    return 1\n"
    )
    with serving(target) as server:
        _, told = server.communicate()
    assert server.returncode == 1
    assert "once.py cannot be loaded: RuntimeError: taken (line 3 of" in told
    assert told.endswith("anabranch: A worker could not start; the reason is above.\n")


async def test_replies_do_not_wait_for_the_acknowledgement_of_the_one_before() -> None:
    """Nagle's algorithm is off on every connection; else each reply is late by 40 ms."""
    off: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def accepted(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection: socket.socket = writer.get_extra_info("socket")
        off.set_result(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    with listen("127.0.0.1", 0) as listener:
        async with await asyncio.start_server(accepted, sock=listener):
            _, writer = await asyncio.open_connection(*listener.getsockname())
            assert await asyncio.wait_for(off, 5)
            writer.close()
            await writer.wait_closed()

"""A process that has imported the command line, and runs each command in a fork of itself.

A new interpreter spends most of a short command's time on imports, and the pages have dozens of
commands. Arguments, environment, working directory, standard streams and exit status are those of
a command that is run in the usual way.

``python -m tests.docs.warm SOCKET`` serves commands until its standard input is closed.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import selectors
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path

__all__ = ["warm_command"]

_CLIENT = """\
#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    order = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(server, [len(order).to_bytes(4)], [0, 1, 2])
    server.sendall(order)
    sys.exit(int(server.recv(4) or b"-1"))
"""
"""Hands its arguments, environment, working directory and streams over, and waits for the end."""

_PRELOADED = (
    "anabranch.cli",
    "anabranch.mcp",
    "anabranch.models",
    "anabranch.stores._calls",
    "anabranch.stores._trees",
    "alembic.command",
    "cyclopts.help",
    "mcp.client.stdio",
    "rich.markdown",
    "sqlalchemy.dialects.sqlite",
)


@contextmanager
def warm_command(folder: Path, environment: dict[str, str]) -> Generator[str]:
    """Start the process; yields the source of the program to run in place of ``anabranch``.

    ``folder`` will hold the socket. On leaving, the process waits for its last command and ends.
    """
    address = str(folder / "commands")
    with subprocess.Popen(
        [sys.executable, "-m", __name__, address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield _CLIENT.format(python=sys.executable, address=address)
        process.stdin.close()
        assert process.wait() == 0


def _serve(address: str) -> None:
    with socket.socket(socket.AF_UNIX) as listener, selectors.DefaultSelector() as ready:
        listener.bind(address)
        listener.listen()
        ready.register(listener, selectors.EVENT_READ)
        ready.register(sys.stdin, selectors.EVENT_READ)
        os.write(1, b"ready\n")
        while [key.fileobj for key, _ in ready.select()] == [listener]:
            client, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _run(client)
            client.close()
            _reap(os.WNOHANG)
    _reap(0)


def _reap(options: int) -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, options) != (0, 0):
            pass


def _run(client: socket.socket) -> None:
    """Run the command that ``client`` sends, and leave the process with its exit status."""
    head, streams, *_ = socket.recv_fds(client, 4, 3)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    with client.makefile("rb") as received:
        arguments, folder, variables = json.loads(received.read(int.from_bytes(head)))
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    sys.argv = ["anabranch", *arguments]
    sys.path[0] = folder
    status: object = 0
    try:
        runpy.run_module("anabranch", run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        status = ended.code
    sys.stdout.flush()
    sys.stderr.flush()
    client.sendall(str(status or 0).encode())
    sys.exit()


if __name__ == "__main__":
    for module in _PRELOADED:
        import_module(module)
    gc.freeze()  # or every fork copies all of it when its garbage is collected
    _serve(sys.argv[1])

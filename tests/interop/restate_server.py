"""A Restate server of a test's own, as npm installs it."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import threading
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from tests.interop.processes import CLIENTS

__all__ = ["RestateServer", "restate_server"]

MACHINES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}
"""What npm calls processors."""


@dataclass(frozen=True)
class RestateServer:
    """A server that runs.

    Attributes:
        ingress: the URL of its ingress.
        admin: the URL of its admin API.
        pid: its process.
    """

    ingress: str
    admin: str
    pid: int


@contextmanager
def restate_server(folder: Path) -> Generator[RestateServer]:
    """Have a server inside the block, with its data in ``folder``."""
    kind = f"restate-server-{sys.platform}-{MACHINES[platform.machine().lower()]}"
    program = CLIENTS / "node_modules" / "@restatedev" / kind / "bin" / "restate-server"
    if not program.exists():
        raise FileNotFoundError(f"There is no {program}: `make interop` makes it.")
    command = [
        *(program, "--no-logo", "--base-dir", folder, "--default-num-partitions", "2"),
        *("--listen-mode", "tcp", "--bind-ip", "127.0.0.1", "--use-random-ports", "true"),
    ]
    # It ends without certificates, which the other tests go without: conftest.py.
    variables = {name: value for name, value in os.environ.items() if name != "SSL_CERT_DIR"}
    quiet = {"RESTATE_LOG_FORMAT": "json", "RESTATE_DISABLE_TELEMETRY": "true"}
    with subprocess.Popen(
        list(map(str, command)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**variables, **quiet},
    ) as process:
        assert process.stdout is not None
        reading = threading.Thread(target=process.stdout.read)  # else a full pipe would block it
        try:
            server = _started(process.stdout, process.pid)
            reading.start()
            _wait_for_partitions(server)
            yield server
        finally:
            process.kill()  # nothing in it is needed any more
            if reading.ident is not None:
                reading.join()


def _started(log: Iterable[str], pid: int) -> RestateServer:
    """Read the ports that the system chose, from what the server writes when it listens."""
    ports: dict[str, int] = {}
    lines: list[str] = []
    for line in log:
        lines.append(line)
        span: dict[str, Any] = json.loads(line).get("span", {}) if line.startswith("{") else {}
        if "server.port" in span:
            ports[span["server_name"]] = span["server.port"]
        if {"http-ingress-server", "admin-api-server"} <= ports.keys():
            return RestateServer(
                f"http://127.0.0.1:{ports['http-ingress-server']}",
                f"http://127.0.0.1:{ports['admin-api-server']}",
                pid,
            )
    raise AssertionError("".join(lines))


def _wait_for_partitions(server: RestateServer) -> None:
    """Return when it answers queries: it listens a moment earlier."""
    query = {"query": "SELECT count(*) FROM sys_invocation"}
    with httpx2.Client() as http:
        while not http.post(f"{server.admin}/query", json=query).is_success:
            pass

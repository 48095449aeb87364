"""A server in a separate process, which a test stops."""

import os
import re
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

ANABRANCH = (sys.executable, "-m", "anabranch")
SERVE = (*ANABRANCH, "serve", "--transport", "http", "--port", "0")
TARGET = str(Path(__file__).with_name("stopped.py"))

Server = subprocess.Popen[str]


@contextmanager
def started(*command: str, folder: Path | None = None) -> Generator[Server]:
    """Yield a server process of ``command``, which ends no later than the block."""
    with subprocess.Popen(
        command,
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "ANABRANCH_KEYS": "k" * 32},
    ) as server:
        try:
            yield server
        finally:
            server.kill()


def url_of(server: Server) -> str:
    """Return the address that the server reports, for every server program."""
    assert server.stderr is not None
    for line in server.stderr:
        if found := re.search(r"http://[^ /]+", line):
            return f"{found[0]}/mcp"
    raise AssertionError

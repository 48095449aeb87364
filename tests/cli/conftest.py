"""A server that the tests of ``call`` share."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SERVED = Path(__file__).with_name("served.py")


@pytest.fixture(scope="session")
def served() -> Path:
    """The TARGET as a file."""
    return SERVED


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    """The URL of the TARGET's tools, served by the real command, which Ctrl-C ends."""
    command = [sys.executable, "-m", "anabranch", "serve", str(SERVED), "--transport", "http"]
    environment = {**os.environ, "ANABRANCH_KEYS": "k" * 32}
    with subprocess.Popen(
        [*command, "--port", "0"], stderr=subprocess.PIPE, text=True, env=environment
    ) as server:
        assert server.stderr is not None
        line = server.stderr.readline()
        assert line.startswith("Serving greet, count,")
        yield line.rpartition(" at ")[2].strip()
        server.send_signal(signal.SIGINT)
        assert server.wait() == 0
        # The last client's connection may still be open for the server.
        assert all(line.startswith("Stopping: ") for line in server.stderr)

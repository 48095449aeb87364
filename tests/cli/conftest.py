"""A server process that the tests of ``call`` share."""

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
    """The TARGET's tools, served over HTTP by the real command; it is stopped as by Ctrl-C."""
    command = [sys.executable, "-m", "anabranch", "serve", str(SERVED), "--transport", "http"]
    environment = {**os.environ, "ANABRANCH_KEYS": "k" * 32}
    with subprocess.Popen(
        [*command, "--port", "0"], stderr=subprocess.PIPE, text=True, env=environment
    ) as server:
        assert server.stderr is not None
        told = server.stderr.readline()
        assert told.startswith("Serving greet, count,")
        yield told.rpartition(" at ")[2].strip()
        server.send_signal(signal.SIGINT)
        assert server.wait() == 0
        assert server.stderr.read() == ""

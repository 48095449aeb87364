"""Fixtures of the command tests: a shared server, and a working directory."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.chats import Desk
from tests.cli.running import Run

SERVED = Path(__file__).with_name("served.py")


@pytest.fixture(scope="session")
def served() -> Path:
    """Return the TARGET as a file."""
    return SERVED


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    """Return the URL of the TARGET's tools, served by the real command, which Ctrl-C ends."""
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
        # The last client's connection may still be open on the server's side.
        assert all(line.startswith("Stopping: ") for line in server.stderr)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return Run(capsys)


@pytest.fixture
def desk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Desk:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("ANABRANCH_MODEL", raising=False)
    monkeypatch.delenv("ANABRANCH_STORE", raising=False)
    return Desk(tmp_path, capsys)


@pytest.fixture
def own_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Remove the modules that a test loads from its folder afterwards, and write no compiled files."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    for name, module in list(sys.modules.items()):
        # A package without __init__.py has folders only.
        places = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
        if any(str(place).startswith(str(tmp_path)) for place in places):
            del sys.modules[name]


@pytest.fixture
def workplace(own_modules: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory, in which a test has its targets."""
    monkeypatch.chdir(tmp_path)
    return tmp_path

"""Fixtures that every test and every page shares: the event loop, the Postgres server, preloaded processes.

With several workers, each runs this file, and so does the process that starts them: the
*controller*. It alone draws the seed and removes the Postgres server, even if a worker crashes.
"""

import logging
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from anabranch._engine import quiescence, scheduler
from tests.cost import Cost
from tests.diary import nothing_done
from tests.hangs import Hangs
from tests.patience import PATIENCE
from tests.postgres import Server
from tests.preloaded import Preloaded, cold
from tests.randomised import LONG, SEED, repeating
from tests.spreading import Spread, long_files_first

if TYPE_CHECKING:
    from tests.telemetry import Collected

__all__ = ["nothing_done"]  # a fixture

FOLDER = "ANABRANCH_TEST_SERVER"
"""The variable by which workers learn the folder of the Postgres server."""


@pytest.hookimpl(tryfirst=True)  # Hypothesis reads its option in this hook
def pytest_configure(config: pytest.Config) -> None:
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = SEED
    config.pluginmanager.register(Hangs())
    config.pluginmanager.register(Cost())
    _heed_signals()
    if not _is_worker(config):
        _use_memory()
        os.environ["ANABRANCH_SEED"] = SEED
        os.environ[FOLDER] = tempfile.mkdtemp(prefix="anabranch-")
        _trust_no_one()


def _trust_no_one() -> None:
    """Have HTTP clients read no certificates: that takes most of what opening one takes, and none is used."""
    os.environ.pop("SSL_CERT_FILE", None)
    os.environ["SSL_CERT_DIR"] = os.environ[FOLDER]


def _use_memory() -> None:
    """Have temporary files in memory, where there is room: databases on a disk wait for it at each commit."""
    memory = Path("/dev/shm")  # noqa: S108 - its entries are folders of pytest with random names
    if "TMPDIR" in os.environ or not memory.is_dir():
        return
    known = os.statvfs(memory)
    if known.f_bavail * known.f_frsize > 4 << 30 and not known.f_flag & os.ST_NOEXEC:
        os.environ["TMPDIR"] = str(memory)
        tempfile.tempdir = None  # as it was found before


def _heed_signals() -> None:
    """Have processes that tests start die of what ends others: a background job inherits it as ignored."""
    for number, handler in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGHUP, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


def pytest_unconfigure(config: pytest.Config) -> None:
    if not _is_worker(config):
        folder = Path(os.environ.pop(FOLDER))
        server = Server(folder)
        if server.is_running:
            server.stop()
        shutil.rmtree(folder)


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def pytest_report_header() -> str:
    return f"seed: ANABRANCH_SEED={SEED}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how each test that failed is repeated: with the seed that it had."""
    failed = [*terminalreporter.getreports("failed"), *terminalreporter.getreports("error")]
    for test in dict.fromkeys(report.nodeid for report in failed):
        terminalreporter.write_line(f"to repeat: {repeating(test)}")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Spread | None:
    """Distribute files and parts of files, unless another distribution was asked for."""
    return Spread(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the long tests to the long run, and order the others for the workers."""
    if _is_worker(config):
        long_files_first(items)
    if not LONG:
        left = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if not item.get_closest_marker("long")]


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Let servers of later tests send events: sse-starlette ends all streams of a process after a signal."""
    if streams := sys.modules.get("sse_starlette.sse"):
        streams.AppStatus.should_exit = False


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Rounds are built on asyncio's tasks; there is no other backend to test."""
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def _patient_rounds() -> Iterator[None]:
    """A busy machine cuts no round off, and no body; tests of that set bounds of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quiescence, "PATIENCE", PATIENCE)
        patch.setattr(scheduler, "CANCEL_TIMEOUT", PATIENCE)
        yield


@pytest.fixture(scope="session", autouse=True)
def preloaded() -> Iterator[Preloaded]:
    """Python processes that tests start are forks of one that has imported the command line."""
    with Preloaded(os.environ).installed() as way:
        yield way


@pytest.fixture(name="cold")
def cold_start() -> Iterator[None]:
    """Processes that the test starts are new interpreters."""
    with cold():
        yield


@pytest.fixture(scope="session")
def postgres() -> Server:
    """A running server, shared by all workers; the database is this worker's own."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    server = Server(Path(os.environ[FOLDER]), database=worker)
    server.share()
    return server


@pytest.fixture(scope="module")
def quiet() -> Iterator[None]:
    """Silence the log, for tests that fail on purpose thousands of times."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def collected(monkeypatch: pytest.MonkeyPatch) -> "Iterator[Collected]":
    """What OpenTelemetry's SDK collects."""
    from tests.telemetry import Collected  # noqa: PLC0415 - few tests need the SDK

    made = Collected(monkeypatch)
    yield made
    made.close()

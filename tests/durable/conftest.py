"""Stores of every kind for durable calls: the plain model, SQLite and Postgres."""

from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from anabranch._durable.store import CallStore
from anabranch.stores import open_store
from anabranch.testing import ManualClock
from tests.durable.stores import Modelled
from tests.stores.conftest import Server


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A running server; without one the tests fail."""
    with TemporaryDirectory(prefix="anabranch-") as folder:
        server = Server(Path(folder))
        server.start()
        yield server
        server.stop()


@pytest.fixture(params=["sqlite", "postgresql"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[CallStore]:
    """A new store in a database."""
    url = f"sqlite:///{tmp_path}/calls.db?synchronous=normal"
    if request.param == "postgresql":
        server: Server = request.getfixturevalue("postgres")
        url = server.new_url()
    opened = open_store(url)
    yield opened
    await opened.close()


@pytest.fixture
def quick() -> Modelled:
    """A new store where it does not matter which."""
    return Modelled()


@pytest.fixture
def clock() -> ManualClock:
    """Time, moved by hand."""
    return ManualClock()

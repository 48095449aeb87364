"""Provides stores for durable calls: the model in memory, SQLite, and Postgres in the long run."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from anabranch._durable import CallStore
from anabranch.stores import open_store
from anabranch.testing import ManualClock
from tests.durable.stores import Modelled
from tests.postgres import Server


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.long)])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[CallStore]:
    url = f"sqlite:///{tmp_path}/calls.db?synchronous=normal"
    if request.param == "postgresql":
        server: Server = request.getfixturevalue("postgres")
        url = server.new_url()
    opened = open_store(url)
    yield opened
    await opened.close()


@pytest.fixture
def quick() -> Modelled:
    return Modelled()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()

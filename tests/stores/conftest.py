"""Provides stores of every kind: SQLite, Postgres and in memory."""

from functools import partial
from pathlib import Path

import pytest

from anabranch.stores import open_store, open_tree_store
from tests.postgres import Server
from tests.suites.call_samples import OpenCallStore
from tests.suites.tree_samples import OpenTreeStore


def new_url(kind: str, request: pytest.FixtureRequest, folder: Path) -> str:
    if kind == "postgresql":
        server: Server = request.getfixturevalue("postgres")
        return server.new_url()
    return "memory:" if kind == "memory" else f"sqlite:///{folder}/calls.db"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of a new store that can be opened several times."""
    return new_url(request.param, request, tmp_path)


@pytest.fixture
def open_shared(url: str) -> OpenCallStore:
    """Return a function that opens the same new store of calls every time."""
    return partial(open_store, url)


@pytest.fixture(params=["sqlite", "postgresql", "memory"])
def open_any(request: pytest.FixtureRequest, tmp_path: Path) -> OpenCallStore:
    return partial(open_store, new_url(request.param, request, tmp_path))


@pytest.fixture
def open_shared_trees(url: str) -> OpenTreeStore:
    """Return a function that opens the same new store of conversations every time."""
    return partial(open_tree_store, url)


@pytest.fixture(params=["sqlite", "postgresql", "memory"])
def open_any_trees(request: pytest.FixtureRequest, tmp_path: Path) -> OpenTreeStore:
    return partial(open_tree_store, new_url(request.param, request, tmp_path))

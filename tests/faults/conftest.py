"""Provides stores on disk: SQLite, and Postgres in the long run."""

from pathlib import Path

import pytest

from tests.postgres import Server


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.long)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of a new store that several processes open."""
    if request.param == "postgresql":
        server: Server = request.getfixturevalue("postgres")
        return server.new_url()
    return f"sqlite:///{tmp_path}/calls.db"

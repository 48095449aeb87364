"""Stores that several web applications share, as processes do."""

from pathlib import Path

import pytest

from tests.postgres import Server


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.long)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a new store that can be opened several times: in SQLite, and in the long run in Postgres."""
    if request.param == "postgresql":
        server: Server = request.getfixturevalue("postgres")
        return server.new_url()
    return f"sqlite:///{tmp_path}/chat.db"

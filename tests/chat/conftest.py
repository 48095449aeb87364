"""Stores that several web applications share, as processes do."""

from pathlib import Path

import pytest

from tests.postgres import Server


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.long)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of a new store that can be opened several times:

    SQLite, and Postgres in the long run.
    """
    if request.param == "postgresql":
        server: Server = request.getfixturevalue("postgres")
        return server.new_url()
    return f"sqlite:///{tmp_path}/chat.db"

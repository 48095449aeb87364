"""Stores that several web applications share, as processes do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.postgres import Server


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a new store that can be opened several times."""
    if request.param == "postgresql":
        server: Server = request.getfixturevalue("postgres")
        return server.new_url()
    return f"sqlite:///{tmp_path}/chat.db"

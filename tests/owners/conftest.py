"""Two users of one chat application, who have used all its operations, for the tests of a file."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.owners.web_story import TwoUsers, two_users
from tests.postgres import Server


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder for the application's files."""
    return tmp_path_factory.mktemp("owners")


@pytest.fixture(
    scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.long)]
)
def url(request: pytest.FixtureRequest, folder: Path) -> str:
    """Return the URL of a new store that several processes can open."""
    if request.param == "postgresql":
        server: Server = request.getfixturevalue("postgres")
        return server.new_url()
    return f"sqlite:///{folder}/chat.db"


@pytest.fixture(scope="module")
async def here(url: str, folder: Path) -> AsyncGenerator[TwoUsers]:
    """Yield the two users; only the last test of a file may change their data."""
    with pytest.MonkeyPatch.context() as patch:
        async with two_users(url, folder, patch) as both:
            yield both

"""Two people in one chat application, who have used all of it, for the tests of a file."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.owners.web_story import TwoPeople, two_people
from tests.postgres import Server


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for what the application needs."""
    return tmp_path_factory.mktemp("owners")


@pytest.fixture(
    scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.long)]
)
def url(request: pytest.FixtureRequest, folder: Path) -> str:
    """The URL of a new store that can be opened several times, as processes do."""
    if request.param == "postgresql":
        server: Server = request.getfixturevalue("postgres")
        return server.new_url()
    return f"sqlite:///{folder}/chat.db"


@pytest.fixture(scope="module")
async def here(url: str, folder: Path) -> AsyncGenerator[TwoPeople]:
    """Two people; no test changes what is theirs, but the last of a file."""
    with pytest.MonkeyPatch.context() as patch:
        async with two_people(url, folder, patch) as both:
            yield both

"""One browser for all tests of the page."""

from collections.abc import AsyncGenerator

import pytest
from playwright.async_api import Browser

from tests.interop.browsing import launched


@pytest.fixture(scope="session")
async def started() -> AsyncGenerator[Browser]:
    async with launched() as found:
        yield found


@pytest.fixture
async def browser(started: Browser) -> AsyncGenerator[Browser]:
    """Return a browser without any open page."""
    yield started
    for context in started.contexts:
        await context.close()

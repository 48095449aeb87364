"""What every test shares: one event loop to run on."""

import pytest


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Rounds are built on asyncio's tasks; there is no other backend to test."""
    return "asyncio"

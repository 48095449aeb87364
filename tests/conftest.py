"""What every test shares: one event loop to run on, and a log that can be silenced."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Rounds are built on asyncio's tasks; there is no other backend to test."""
    return "asyncio"


@pytest.fixture(scope="module")
def quiet() -> Iterator[None]:
    """For tests that fail on purpose, thousands of times: the log would tell of nothing else."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)

"""Provides a new store of memories for each test."""

from collections.abc import AsyncIterator

import pytest

from anabranch.memory import MemoryStore
from anabranch.stores import open_memory_store


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    """Yield a new store in memory."""
    store = open_memory_store("memory:")
    yield store
    await store.close()
